"""The workflow shapes that load a simulated fabric."""
