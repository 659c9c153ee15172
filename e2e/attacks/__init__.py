"""Attacks that only a real cluster can show; the others are in ``tests/attacks/``."""
