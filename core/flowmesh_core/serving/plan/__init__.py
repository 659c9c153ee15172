"""What the control plane decides about services: targets, caps, capacity."""
