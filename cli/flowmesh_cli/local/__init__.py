"""A fabric on one machine: the control plane in this process, workers as processes beside it."""
