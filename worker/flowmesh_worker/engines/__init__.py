"""The engines that ship with FlowMesh; they use the same plugin API as any other engine."""
