"""The worker process around the worker agent: shell, connection, and data of attempts."""
