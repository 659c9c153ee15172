"""The controller of worker pools: their Kubernetes objects and their sizes."""
