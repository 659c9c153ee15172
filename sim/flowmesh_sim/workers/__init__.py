"""The simulated worker: instances, standby hosts, inputs, connection."""
