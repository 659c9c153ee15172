"""Replays recorded runs on a simulated fabric, for ``fmesh replay``."""
