"""A call that waits for an engine instance."""

import msgspec


class WaitingCall(msgspec.Struct, frozen=True, gc=False):
    """A call in an instance's queue.

    Attributes:
        id: of the request.
        deadline_s: when its reply is due, by the clock that the queue is read with.
        visits: how often it still needs this instance, at least 1: the iterations that are left of
            a loop.
        rest_s: the least time that it needs after its last visit here.
        passed_over: in how many batches it was not, although it waited.
        budget_s: what is left of the parts of its latency target up to and with this component;
            read by :mod:`flowmesh_core.serving.queue.neustream` alone.
    """

    id: str
    deadline_s: float
    visits: int = 1
    rest_s: float = 0.0
    passed_over: int = 0
    budget_s: float = 0.0

    def seconds_a_visit(self, now_s: float, margin_s: float) -> float:
        """Returns how long each of its visits may take for the reply to be in time."""
        return (self.deadline_s - now_s - self.rest_s - margin_s) / self.visits
