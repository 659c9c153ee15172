"""What scenarios are written with: a cluster, the chart installed in it, and eyes on both."""
