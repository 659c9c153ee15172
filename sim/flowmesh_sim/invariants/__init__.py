"""The invariants of a simulation, checked after events."""
