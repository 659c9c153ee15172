"""The request log: who asked the control plane for what, as signed records that form a chain."""
