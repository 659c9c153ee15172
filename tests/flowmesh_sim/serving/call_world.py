"""A world of routers and hubs alone, in virtual time."""

import random
from dataclasses import replace

from flowmesh_core.serving.profile import BatchProfile
from flowmesh_core.serving.route.call_router import AdmissionLimits
from flowmesh_sim.kernel.environment import Environment
from flowmesh_sim.serving.call_arrivals import arrival_times
from flowmesh_sim.serving.call_book import CallBook
from flowmesh_sim.serving.call_fabric import CallFabric, SimCall
from flowmesh_sim.serving.sim_engines import BatchingEngine, DecodingEngine, Ended, SimEngine
from flowmesh_sim.serving.sim_hub import SimHub

SERVICE = "team-a/ask"
PROFILE = BatchProfile.of({1: 0.05, 8: 0.1})


class CallWorld:
    """Some hubs with a replica each, and routers."""

    def __init__(
        self,
        hubs: int = 3,
        routers: int = 2,
        *,
        batches: bool = False,
        limits: AdmissionLimits | None = None,
        seed: int = 1,
    ) -> None:
        self.engine, self.rng = Environment(), random.Random(seed)
        given = {} if limits is None else {SERVICE: limits}
        self.fabric = CallFabric(self.engine, self.rng, routers, given, logs=True)
        self.batches = batches
        self.made: list[SimEngine] = []
        for n in range(hubs):
            self.start_hub(n)
        self.engine.run(until_s=0.1, over=lambda: False)

    def start_hub(self, n: int) -> SimHub:
        hub = SimHub(self.engine, f"hub-{n}", self.fabric, lambda *_: None)
        self.fabric.connect(hub)
        hub.admit(f"{SERVICE}/{n}", SERVICE, n, self._engine)
        return hub

    def _engine(self, ended: Ended) -> SimEngine:
        engine: SimEngine = DecodingEngine(self.engine, 8, 0.02, 0.002, ended)
        if self.batches:
            engine = BatchingEngine(self.engine, 8, PROFILE, ended)
        self.made.append(engine)
        return engine

    def ask(
        self,
        rate: float,
        seconds: float = 10.0,
        kind: str = "poisson",
        keys: int = 0,
        **known: object,
    ) -> None:
        """Sends calls, every other one with one of so many keys."""
        for n, at in enumerate(arrival_times(kind, rate, seconds, self.rng)):
            at_s = self.engine.now_s + at
            key = f"key-{n % keys}" if keys and n % 2 else ""
            call = SimCall(f"c{n}", SERVICE, "team-a", at_s + 5.0, 20.0, key)
            self.engine.at(at_s, self.fabric.ask, replace(call, **known))  # type: ignore[arg-type]

    def run(self) -> CallBook:
        self.engine.run(until_s=1000.0, over=lambda: False)
        self.fabric.check_ended()
        assert all(engine.load == (0, 0) for engine in self.made)
        assert all(hub.in_flight == 0 for hub in self.fabric.hubs.values())
        return self.fabric.book
