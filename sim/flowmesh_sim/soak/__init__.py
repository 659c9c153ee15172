"""Random scenarios with every invariant checked: ``python -m flowmesh_sim.soak``."""
