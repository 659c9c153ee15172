"""Garbage collection of a store: marks what is referenced and sweeps the rest."""
