"""The control plane's Prometheus metrics, answered by ``GET /metrics``."""
