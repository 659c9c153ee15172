"""Workflows that load a simulated fabric, with their shapes and groups."""
