"""The controller of FlowMeshQuota objects."""
