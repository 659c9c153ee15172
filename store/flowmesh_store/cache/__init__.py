"""A local disk cache of blobs in front of a slower store, with least recently used eviction."""
