"""The life of a run outside the machine: admission, uploads, recovery, repin, its durable end."""
