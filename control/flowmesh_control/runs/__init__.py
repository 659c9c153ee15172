"""The lifecycle of a run outside the machine: admission, uploads, recovery, repin, durable end."""
