"""A request to a service with stages, as one of its hubs has it."""

from dataclasses import dataclass, field

from flowmesh_core.protocol.serving import RunStages
from flowmesh_core.stages.service_graph import LoadedGraph
from flowmesh_worker.serving.instance_link import InstanceLink
from flowmesh_worker.serving.router_link import RouterLink
from flowmesh_worker.serving.stage_plans import RoutePlan


@dataclass(slots=True, eq=False)
class StageTimes:
    """When the call of a stage came, and what it took, by the loop's clock.

    Attributes:
        call_id: of the host's call, which may be of several stages.
        arrived_s: when it was made.
        ended_s: when it ended; 0 before.
        queue_s: seconds that it waited; 0 where that was not measured.
        compute_s: seconds that it ran, likewise.
    """

    call_id: str
    arrived_s: float
    ended_s: float = 0.0
    queue_s: float = 0.0
    compute_s: float = 0.0


@dataclass(slots=True, eq=False)
class StagedRequest:
    """A request that runs here.

    Attributes:
        plan: of its route.
        until_s: its timeout, and ``due_s`` when its reply is late (0 for no target), by the loop's
            clock.
        calls: call id by stage that runs.
        stored: keys of values, by the host that keeps them or may do so: a call that is aborted may
            have been computed.
        value_bytes: of its values.
        peers: workers that were sent values of it.
        times: of the stages that have begun here.
    """

    link: RouterLink
    run: RunStages
    graph: LoadedGraph
    plan: RoutePlan
    until_s: float
    due_s: float
    calls: dict[str, str] = field(default_factory=dict)
    stored: dict[InstanceLink, list[str]] = field(default_factory=dict)
    value_bytes: int = 0
    peers: set[str] = field(default_factory=set)
    times: dict[str, StageTimes] = field(default_factory=dict)

    @property
    def version(self) -> int:
        """The version of its route."""
        return self.run.route.version
