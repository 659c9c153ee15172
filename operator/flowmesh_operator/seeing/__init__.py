"""What the operator adds to the control plane's metrics and logs."""
