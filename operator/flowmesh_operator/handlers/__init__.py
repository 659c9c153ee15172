"""What kopf calls: events of watched objects, handed to the mirror and nothing else."""
