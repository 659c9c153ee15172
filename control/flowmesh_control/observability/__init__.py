"""Log lines of runs and, where configured, OpenTelemetry traces."""
