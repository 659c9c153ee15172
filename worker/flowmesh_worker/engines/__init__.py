"""The engines that ship with FlowMesh, loaded through the same door as any plugin."""
