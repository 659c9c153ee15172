"""The control plane without Kubernetes: one writer, a gateway for workers, a ledger and an API."""
