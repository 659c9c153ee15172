"""Who may do what, by the cluster's own rights."""
