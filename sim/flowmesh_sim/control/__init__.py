"""The simulated control plane around the shipped machine: store, gateway, provisioning."""
