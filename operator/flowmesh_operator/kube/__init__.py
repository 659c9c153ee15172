"""Access to the API server: client, informer cache, work queue, lease."""
