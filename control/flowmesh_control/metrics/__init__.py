"""The control plane's metrics: what ``GET /metrics`` answers, and the counters behind it."""
