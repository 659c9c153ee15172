"""Engines that tests and benchmarks use: they do nothing, wait, map or fail."""
