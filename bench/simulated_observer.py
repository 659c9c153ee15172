"""A tenant of the simulated fabric: it runs steps that another tenant ran before, or new ones.

Called by ``side_channels.py`` and by the tests of attack 14. Further tenants keep the workers busy,
so that times vary as on a fabric in use. The steps read no content: the simulator does not model
that it lies by scope.
"""

from random import Random

from flowmesh_core.machine.events import Submitted
from flowmesh_sim.run.arrivals import scopes_of
from flowmesh_sim.run.measurements import RunMeasurements
from flowmesh_sim.run.simulation import Simulation
from flowmesh_sim.scenario import scenario_of
from flowmesh_sim.workloads.workflow_shapes import SHAPES, WEIGHTS, PlanBuilder

OWNER, OBSERVER = "team-0", "team-2"
"""Of the same group under ``sharing: group``, which joins tenants of even numbers."""
KNOWN, FRESH = "known", "fresh"


class SimulatedObserver:
    """Lets the owner run a step, and the observer that step and a fresh one, in random order.

    Attributes:
        remaining: pairs of samples that are not begun yet.
    """

    def __init__(self, pairs: int, *, sharing: str, seed: int = 0, busy: bool = True) -> None:
        """Assembles the simulation.

        Args:
            pairs: samples of each kind.
            sharing: of the scenario: ``private`` without a policy.
            seed: of the simulation and of the order.
            busy: whether other tenants run steps at random moments.
        """
        self.remaining = pairs
        load = {
            "shapes": ["noop-flat"], "runs": pairs * 6, "rows": 2, "variants": 10**9,
            "options": {"seconds": 0.5}, "arrivals": {"kind": "poisson", "perMinute": 50.0},
        }  # fmt: skip
        document = {
            "name": "side channels", "sharing": sharing, "load": [load] if busy else [],
            "pools": [{"name": "small", "device": "cpu", "workers": 2}],
        }  # fmt: skip
        self._simulation = Simulation(scenario_of(document), seed=seed)
        self._simulation.loads.append(self)
        self._fabric = self._simulation.fabric
        self._fabric.on_end.append(self._continue)
        self._rng = Random(seed)
        self._number = 0
        self._waiting: list[tuple[str, str, int]] = []
        self._current = ""
        self._sharing = sharing
        self._fabric.engine.after(0.0, self._next)

    def samples(self) -> dict[str, list[dict[str, float]]]:
        """Simulates everything; returns what the observer saw of its runs, by kind of step."""
        result = self._simulation.run()
        found: dict[str, list[dict[str, float]]] = {KNOWN: [], FRESH: []}
        for run in result.every:
            kind = run.uid.partition(" ")[0]
            if kind in found:
                found[kind].append(_features(run))
        return found

    def _continue(self, uid: str) -> None:
        if uid == self._current:
            self._fabric.engine.after(self._rng.uniform(0.0, 0.5), self._next)

    def _next(self) -> None:
        if not self._waiting:
            if not self.remaining:
                return
            self.remaining -= 1
            self._number += 2
            asked = [(KNOWN, OBSERVER, self._number), (FRESH, OBSERVER, self._number + 1)]
            self._rng.shuffle(asked)
            self._waiting = [("first", OWNER, self._number), *asked]
        self._submit(*self._waiting.pop(0))

    def _submit(self, kind: str, tenant: str, variant: int) -> None:
        fabric = self._fabric
        builder = PlanBuilder(
            contents=fabric.store.contents,
            hardware=self._simulation.hardware,
            catalog=fabric.catalog,
            rng=self._rng,
            variant=variant,
            rows=2,
            options={"seconds": 0.2},
        )
        SHAPES["noop-chain"](builder)
        self._current = f"{kind} {variant}"
        plan = builder.plan(self._current, tenant, WEIGHTS["balanced"])
        scopes = scopes_of(tenant, self._sharing)
        event = Submitted(self._current, plan, fabric.wall_s(), scopes, builder.artifacts)
        fabric.submit(event)


def _features(run: RunMeasurements) -> dict[str, float]:
    return {
        "seconds": run.latency_s,
        "seconds queued": run.queued_s,
        "dollars": run.paid_usd,
        "actions run": run.executed,
        "hits": run.hits,
    }
