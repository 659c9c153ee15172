"""A worker that has joined and is not lost; its name is taken until then."""

from dataclasses import dataclass

from flowmesh_control.workers.join_checks import Refusal
from flowmesh_control.workers.receive_rate import ReceiveRate
from flowmesh_control.workers.session import WorkerSession
from flowmesh_core.protocol.messages import Hello


@dataclass(slots=True)
class KnownWorker:
    """What the gateway keeps of a worker, over all its connections.

    Attributes:
        proven_pool: the pool that its token is for, ``*`` for any; ``trust`` is that pool's.
        seen_s: when it synchronised last, by the gateway's clock.
        session: None while it is not connected.
        rate: what it has sent of late.
    """

    incarnation: str
    pool: str
    proven_pool: str
    trust: int
    seen_s: float
    session: WorkerSession | None
    rate: ReceiveRate

    def refusal(self, hello: Hello) -> Refusal | None:
        """Returns why another worker may not have this one's name; None for this one itself."""
        if self.pool != hello.shape.pool:
            return Refusal(
                f"the name {hello.shape.name!r} belongs to a worker of another pool; "
                "give this one another name",
                final=False,
            )
        if self.session is not None and self.incarnation != hello.incarnation:
            return Refusal(
                f"a worker named {hello.shape.name!r} is connected; give this one another name",
                final=False,
            )
        return None
