"""Messages between the worker agent and an engine host, and what both ends share."""
