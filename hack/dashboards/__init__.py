"""The Grafana dashboards: what they show, and how they are written and tried."""
