"""Access to a cluster's fabric, with the rights of the user's kubeconfig.

Only this package imports ``kubernetes``, and only when a command uses a cluster.
"""
