"""The pure core of FlowMesh: no I/O, no clock, no randomness, no environment."""
