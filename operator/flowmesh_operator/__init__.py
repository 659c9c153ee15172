"""The Kubernetes side of the control plane's ports."""
