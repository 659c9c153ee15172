"""A request to a service with stages, as one of its hubs has it."""

from dataclasses import dataclass, field

from flowmesh_core.protocol.serving import RunStages
from flowmesh_core.stages.service_graph import LoadedGraph
from flowmesh_worker.serving.instance_link import InstanceLink
from flowmesh_worker.serving.router_link import RouterLink
from flowmesh_worker.serving.stage_plans import RoutePlan


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

    @property
    def version(self) -> int:
        """The version of its route."""
        return self.run.route.version
