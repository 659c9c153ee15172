"""Authentication and rights: users, worker tokens, the master key, the TLS certificate."""
