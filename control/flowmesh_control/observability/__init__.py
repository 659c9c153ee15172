"""What the control plane tells of runs as they go: log lines, and traces where wanted."""
