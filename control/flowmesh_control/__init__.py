"""The control plane without Kubernetes: event loop, worker gateway, ledger, records and API."""
