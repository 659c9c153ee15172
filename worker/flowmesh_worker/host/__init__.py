"""The engine host: the process that runs one engine."""
