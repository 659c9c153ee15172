"""The controller of FlowMeshWorkflow objects and their runs."""
