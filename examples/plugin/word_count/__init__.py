"""A FlowMesh engine that counts words."""
