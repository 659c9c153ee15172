"""Functions that kopf calls: they pass watch events to the informer cache and do nothing else."""
