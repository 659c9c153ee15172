"""The control plane: one single-writer loop around the pure core, without Kubernetes."""
