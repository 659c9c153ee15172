"""The calls of a simulation's services: when they are sent, and how each engine answers them."""

from typing import TYPE_CHECKING

from flowmesh_sim.kernel.environment import Environment, RandomStreams
from flowmesh_sim.serving.call_arrivals import arrival_times
from flowmesh_sim.serving.call_fabric import CallFabric, SimCall
from flowmesh_sim.serving.sim_engines import DecodingEngine, Ended, SimEngine
from flowmesh_sim.serving.sim_hub import MakeEngine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from flowmesh_sim.scenario import SimulatedCalls, SimulatedService

SERVICE_NAMESPACE = "sim"


class ServiceCalls:
    """All calls of a simulation.

    Attributes:
        fabric: routers, hubs and clients.
    """

    def __init__(
        self,
        engine: Environment,
        dice: RandomStreams,
        services: "Sequence[SimulatedService]",
        routers: int,
    ) -> None:
        """Schedules every call.

        Args:
            engine: virtual time.
            dice: all randomness.
            services: those of the scenario.
            routers: how many there are.
        """
        self.fabric = CallFabric(engine, dice.stream("links of routers"), routers)
        self._engine = engine
        self._specs = {
            f"{SERVICE_NAMESPACE}/{s.name}": s.calls for s in services if s.calls is not None
        }
        self.last_s = 0.0
        for service in services:
            if service.calls is not None:
                self._schedule(service, service.calls, dice)

    @property
    def remaining(self) -> int:
        """Calls that have not ended, and whether some are not sent yet."""
        return len(self.fabric.book.open) + (self._engine.now_s < self.last_s)

    def engine_of(self, service: str) -> MakeEngine | None:
        """Returns what makes an engine of a service; None where it gets no calls."""
        spec = self._specs.get(service)
        if spec is None:
            return None

        def make(ended: Ended) -> SimEngine:
            return DecodingEngine(self._engine, spec.calls_max, spec.step_s, spec.call_s, ended)

        return make

    def calls_max(self, service: str) -> int:
        """Returns how many calls a replica of a service runs at once; 0 where it gets none."""
        spec = self._specs.get(service)
        return 0 if spec is None else spec.calls_max

    def _schedule(
        self, service: "SimulatedService", spec: "SimulatedCalls", dice: RandomStreams
    ) -> None:
        name, rng = f"{SERVICE_NAMESPACE}/{service.name}", dice.stream(f"calls of {service.name}")
        for n, at in enumerate(arrival_times(spec.kind, spec.per_second, spec.for_s, rng, spec.cv)):
            at_s = service.at_s + at
            call = SimCall(
                f"{name}/{n}",
                name,
                f"team-{rng.randrange(spec.tenants)}",
                at_s + spec.deadline_s,
                max(1.0, rng.expovariate(1 / spec.units)),
            )
            self._engine.at(at_s, self.fabric.ask, call)
            if rng.random() < spec.cancelled:
                leaves_s = at_s + rng.uniform(0.0, spec.deadline_s)
                self._engine.at(leaves_s, self.fabric.cancel, call.call_id)
            self.last_s = max(self.last_s, at_s)
