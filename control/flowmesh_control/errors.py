"""What the API can say no with, besides the core's errors."""

from flowmesh_core.errors import FlowMeshError


class NotFoundError(FlowMeshError):
    """There is no such run, step, artifact or policy, or none that the user may see."""


class ConflictError(FlowMeshError):
    """It cannot be done in the state that things are in."""


class PlanRefusedError(FlowMeshError):
    """A budget or deadline that the plan cannot meet."""


class UnknownUserError(FlowMeshError):
    """The request says nobody's name: its token is missing, wrong or has expired."""


class ForbiddenError(FlowMeshError):
    """The user may see that it is there, and no more."""


class AuthorizationUnavailableError(FlowMeshError):
    """Whoever knows the users and their rights does not answer."""

    retryable = True
    retry_after_s = 2.0
