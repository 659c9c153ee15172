"""Callers whose tokens the control plane reviews: those of Kubernetes."""
