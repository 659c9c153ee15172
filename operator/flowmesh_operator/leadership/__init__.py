"""Leader election, and the work of the leader."""
