"""The Kubernetes operator: reconciles custom resources; its leader runs the control plane."""
