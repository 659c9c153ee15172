"""The worker gateway: sessions, validation of workers' messages, their log lines."""
