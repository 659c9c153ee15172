"""The port through which stages call the replicas of their hub."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from flowmesh_core.stages.stage_timing import StageTiming
from flowmesh_worker.ipc.passed_values import StageBytes
from flowmesh_worker.serving.instance_link import HostCall, InstanceLink, ToCaller
from flowmesh_worker.serving.router_link import RouterLink


class StageReplica(Protocol):
    """A replica of the hub."""

    @property
    def instance(self) -> InstanceLink:
        """Its engine instance."""
        ...

    @property
    def timings(self) -> Mapping[str, StageTiming]:
        """By stage that calls it, what a call may take."""
        ...


class StageReplicas(Protocol):
    """The part of the hub that stages use.

    Attributes:
        generation: rises whenever a replica has another engine instance or other timings, or is
            gone.
    """

    generation: int

    def replica(self, replica_id: str) -> StageReplica | None:
        """Returns a replica; None for one that is not known here."""
        ...

    def start(
        self,
        link: RouterLink,
        replica_ids: Sequence[str],
        tenant: str,
        call: HostCall,
        reply: Callable[[ToCaller], None],
        passed: Mapping[str, StageBytes],
    ) -> str:
        """Begins a call of replicas in one instance, with the values that it names.

        Returns:
            Why it is refused, else nothing.
        """
        ...

    def abort(self, call_id: str) -> None:
        """Drops a call; its end is not reported."""
        ...
