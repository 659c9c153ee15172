"""Collection and purge of cached results, and the roots that they must keep."""
