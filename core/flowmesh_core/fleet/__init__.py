"""The scheduler's view of the fleet: snapshots, ready actions, demand, memory limits.

The machine makes a snapshot for each scheduling cycle; placement and autoscaling read it.
"""
