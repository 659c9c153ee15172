"""The laptop mode: a control plane in this process, workers beside it."""
