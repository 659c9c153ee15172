"""The worker: an agent, its engine hosts and the engines."""
