"""The worker: the worker agent, its engine hosts and the engines that they run."""
