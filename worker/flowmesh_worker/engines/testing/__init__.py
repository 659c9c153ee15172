"""Engines for tests and benchmarks: they do nothing, wait, map rows or fail."""
