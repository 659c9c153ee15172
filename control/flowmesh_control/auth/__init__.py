"""Who may do what: users, worker tokens, the master key, the TLS certificate."""
