"""The core in virtual time: workers, stores and faults simulated around the shipped scheduler."""
