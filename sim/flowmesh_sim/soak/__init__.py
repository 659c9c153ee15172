"""Simulates random scenarios with all invariants checked: ``python -m flowmesh_sim.soak``."""
