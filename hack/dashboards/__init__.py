"""The Grafana dashboards: their definitions, and the tools that write and try them."""
