"""What simulated work takes: devices, engines, content, the store."""
