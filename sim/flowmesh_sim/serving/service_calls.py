"""The calls of a simulation's services: when they are sent, and how each engine answers them."""

from collections.abc import Mapping
from dataclasses import dataclass

from flowmesh_sim.kernel.environment import Environment, RandomStreams
from flowmesh_sim.serving.call_arrivals import arrival_times
from flowmesh_sim.serving.call_fabric import CallFabric, SimCall
from flowmesh_sim.serving.sim_engines import DecodingEngine, Ended, SimEngine
from flowmesh_sim.serving.sim_hub import MakeEngine


@dataclass(frozen=True, slots=True)
class CallLoad:
    """The calls of one service; see ``scenario.SimulatedCalls``. They begin at ``at_s``."""

    at_s: float
    per_second: float
    for_s: float
    kind: str
    cv: float
    units: float
    deadline_s: float
    cancelled: float
    tenants: int
    calls_max: int
    step_s: float
    call_s: float


class ServiceCalls:
    """All calls of a simulation.

    Attributes:
        fabric: routers, hubs and clients.
        last_s: when the last call is sent.
    """

    def __init__(
        self, engine: Environment, dice: RandomStreams, loads: Mapping[str, CallLoad], routers: int
    ) -> None:
        """Schedules every call.

        Args:
            engine: virtual time.
            dice: all randomness.
            loads: by service, as ``namespace/name``.
            routers: how many there are.
        """
        self.fabric = CallFabric(engine, dice.stream("links of routers"), routers)
        self.last_s = 0.0
        self._engine = engine
        self._loads = loads
        for service, load in loads.items():
            self._schedule(service, load, dice)

    @property
    def has_ended(self) -> bool:
        """Whether all calls are sent, and have ended."""
        return self._engine.now_s >= self.last_s and not self.fabric.book.open

    def engine_of(self, service: str) -> MakeEngine | None:
        """Returns what makes an engine of a service; None where it gets no calls."""
        load = self._loads.get(service)
        if load is None:
            return None

        def make(ended: Ended) -> SimEngine:
            return DecodingEngine(self._engine, load.calls_max, load.step_s, load.call_s, ended)

        return make

    def _schedule(self, service: str, load: CallLoad, dice: RandomStreams) -> None:
        rng = dice.stream(f"calls of {service}")
        times = arrival_times(load.kind, load.per_second, load.for_s, rng, load.cv)
        for n, at in enumerate(times):
            at_s = load.at_s + at
            call = SimCall(
                f"{service}/{n}",
                service,
                f"team-{rng.randrange(load.tenants)}",
                at_s + load.deadline_s,
                max(1.0, rng.expovariate(1 / load.units)),
            )
            self._engine.at(at_s, self.fabric.ask, call)
            if rng.random() < load.cancelled:
                leaves_s = at_s + rng.uniform(0.0, load.deadline_s)
                self._engine.at(leaves_s, self.fabric.cancel, call.call_id)
            self.last_s = max(self.last_s, at_s)
