"""The simulated side of the control plane around the shipped machine."""
