"""Users, worker tokens and Secrets, authorized by the API server's reviews and RBAC."""
