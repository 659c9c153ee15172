"""The controller of FlowMeshService objects, and the status that it writes."""
