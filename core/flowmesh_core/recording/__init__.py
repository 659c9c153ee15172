"""Records real runs without their content, for ``fmesh replay`` in the simulator."""

from flowmesh_core.recording.projection import recorded

__all__ = ["recorded"]
