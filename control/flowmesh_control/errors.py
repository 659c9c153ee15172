"""Errors of the control plane that the API answers with, besides the core's.

``api/responses.py`` gives each its HTTP status.
"""

from flowmesh_core.errors import FlowMeshError


class NotFoundError(FlowMeshError):
    """The run, step, artifact or policy does not exist, or the user may not see it."""


class ConflictError(FlowMeshError):
    """The request is not possible in the current state of the object."""


class NewerPlanError(ConflictError):
    """The plan of a run has a level that only newer releases run; nothing of it may be guessed."""


class PlanRefusedError(FlowMeshError):
    """The plan cannot meet the workflow's budget or deadline, or no worker can run a step."""


class UnplaceableError(PlanRefusedError):
    """No worker that there is or that a pool declares can run a step; a further pool may."""


class UnknownUserError(FlowMeshError):
    """The request has no known user: its token is missing, wrong or expired."""


class ForbiddenError(FlowMeshError):
    """The user may see the object but not do this to it."""


class QuotaExceededError(FlowMeshError):
    """A namespace has as much as its quota allows."""

    def __init__(self, message: str, *, remedy: str, can_pass: bool) -> None:
        """Keeps ``can_pass``: whether the same request may succeed when something has ended."""
        super().__init__(message, where="quota", remedy=remedy)
        self.can_pass = can_pass


class RateExceededError(FlowMeshError):
    """A user asks more often, or has more open, than the quota of the namespace allows."""

    retryable = True

    def __init__(self, message: str, *, wait_s: float, remedy: str = "") -> None:
        """Keeps when the request may be repeated; ``remedy`` says it in other words."""
        said = remedy or f"try again in {wait_s:.0f} s"
        super().__init__(message, where="quota", remedy=said)
        self.retry_after_s = wait_s


class AuthorizationUnavailableError(FlowMeshError):
    """The service that knows users and their rights does not answer."""

    retryable = True
    retry_after_s = 2.0


class PlacementUnknownError(FlowMeshError):
    """A leader that has just begun does not know yet where the replicas of services are."""

    retryable = True
    retry_after_s = 2.0


class EvaluatorUnavailableError(FlowMeshError):
    """A process that evaluates what tenants wrote cannot be started now."""

    retryable = True
    retry_after_s = 2.0
