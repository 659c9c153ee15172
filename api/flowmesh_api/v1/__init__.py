"""Version 1 of the control API: JSON below ``/v1``.

Fields are only added, and with defaults; a changed meaning is a new version.
"""
