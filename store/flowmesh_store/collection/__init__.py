"""Garbage collection of a store: marks referenced blobs and sweeps the others."""
