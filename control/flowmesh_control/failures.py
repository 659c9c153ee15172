"""What the API can say no with, besides the core's errors."""

from flowmesh_core.errors import FlowMeshError


class NotFoundError(FlowMeshError):
    """There is no such run, step, artifact or policy."""


class ConflictError(FlowMeshError):
    """It cannot be done in the state that things are in."""


class UnmeetableError(FlowMeshError):
    """A budget or deadline that the plan cannot meet."""
