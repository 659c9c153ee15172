"""The controller of FlowMeshCachePolicy objects."""
