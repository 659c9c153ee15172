"""Messages between the control plane and workers, results, and their validation.

Both ends import it. Field names on the wire are fixed while ``PROTOCOL_VERSION`` stays.
"""
