"""What becomes of a call of a component, or of a chain of them."""

from typing import NamedTuple

from flowmesh_core.protocol.serving import ComponentCall
from flowmesh_worker.engines.code.component_frames import CallResult


class CallEndError(Exception):
    """A call has no result.

    Attributes:
        step: which call of a chain ended it; see ``ComponentCall.then``.
    """

    def __init__(self, step: int = 0) -> None:
        super().__init__()
        self.step = step


class QueueFullError(CallEndError):
    """A component has as many calls as it takes."""


class LateError(CallEndError):
    """A call cannot be in time, and its service refuses such."""


class ChainResult(NamedTuple):
    """The result of a call, or of the last one of a chain that was run.

    Attributes:
        call: that it is of.
        step: which call of the chain that is; see ``ComponentCall.then``.
        times: see ``CallEnded``; none where the call did not ask for them.
    """

    call: ComponentCall
    result: CallResult
    step: int
    times: tuple[tuple[float, float], ...] = ()
