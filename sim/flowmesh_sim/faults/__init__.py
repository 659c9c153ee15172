"""Faults that a scenario injects into workers, the network and the store."""
