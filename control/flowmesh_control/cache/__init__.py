"""Collection and purge of cached results, and the roots that a collection must not delete."""
