"""Cache policies of the cluster, brought to the control plane."""
