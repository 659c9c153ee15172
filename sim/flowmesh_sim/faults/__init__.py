"""The faults of a scenario: in workers, the network, the store and the control plane."""
