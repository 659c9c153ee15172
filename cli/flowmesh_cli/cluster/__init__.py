"""A cluster's fabric, with the rights of the user's kubeconfig.

The package ``kubernetes`` is imported when a command goes to a cluster, and here alone.
"""
