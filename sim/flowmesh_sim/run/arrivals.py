"""Submits the runs of a load: shapes, tenants, data and times."""

from math import cos, log, tau
from random import Random

from flowmesh_api.v1.enums import Sharing
from flowmesh_api.v1.fabric import CachePolicy
from flowmesh_core.machine.events import Submitted
from flowmesh_core.sharing.scopes import ScopePlan, plan_scopes
from flowmesh_core.units import nano_usd
from flowmesh_sim.control.fabric import SimulatedFabric
from flowmesh_sim.models.devices import HardwareCatalog
from flowmesh_sim.scenario import Arrivals, LoadSpec
from flowmesh_sim.workloads.workflow_shapes import SHAPES, WEIGHTS, PlanBuilder

MINUTE_S = 60.0


def arrival_times(arrivals: Arrivals, runs: int, rng: Random) -> list[float]:
    """Returns each run's time of submission, in virtual seconds; for a closed loop, the first ones.

    A decaying rate is ``r(t) = r0 exp(-t / tau)`` with tau such that the rate at the last run is
    ``to_per_minute``; the arrivals are a Poisson process with that rate.
    """
    first = arrivals.after_s
    match arrivals.kind:
        case "at-once" | "closed":
            return [first] * runs
        case "every":
            return [first + n * MINUTE_S / arrivals.per_minute for n in range(runs)]
        case "poisson":
            times, now = [], first
            for _ in range(runs):
                now += rng.expovariate(arrivals.per_minute / MINUTE_S)
                times.append(now)
            return times
        case "diurnal":
            return _diurnal_times(arrivals, runs, rng)
    high, low = arrivals.per_minute / MINUTE_S, arrivals.to_per_minute / MINUTE_S
    decay_s = runs / (high - low)
    times, mass = [], 0.0
    for _ in range(runs):
        mass += rng.expovariate(1.0)
        left = max(1.0 - mass / (high * decay_s), low / high / 4)
        times.append(first - decay_s * log(left))
    return times


def _diurnal_times(arrivals: Arrivals, runs: int, rng: Random) -> list[float]:
    """Draws from a Poisson process with a rate that rises and falls as a cosine, by thinning."""
    high, low = arrivals.per_minute / MINUTE_S, arrivals.to_per_minute / MINUTE_S
    times: list[float] = []
    passed_s = 0.0
    while len(times) < runs:
        passed_s += rng.expovariate(high)
        rate = low + (high - low) * (1.0 - cos(tau * passed_s / arrivals.period_s)) / 2
        if rng.random() * high < rate:
            times.append(arrivals.after_s + passed_s)
    return times


class Workload:
    """Submits the runs of one load.

    Attributes:
        remaining: runs that are not submitted yet.
    """

    def __init__(
        self,
        fabric: SimulatedFabric,
        hardware: HardwareCatalog,
        spec: LoadSpec,
        *,
        number: int,
        sharing: str,
    ) -> None:
        """Schedules the arrivals.

        Args:
            fabric: to submit to.
            hardware: models and data sets.
            spec: the load.
            number: of the load in the scenario.
            sharing: of the scenario.
        """
        self._fabric = fabric
        self._hardware = hardware
        self._spec = spec
        self._number = number
        self._sharing = sharing
        self._rng = fabric.dice.stream(f"load {number}")
        self.remaining = spec.runs
        times = arrival_times(spec.arrivals, spec.runs, fabric.dice.stream(f"arrivals {number}"))
        closed = spec.arrivals.kind == "closed"
        self._uids: set[str] = set()
        self._next = spec.arrivals.concurrent if closed else spec.runs
        for n, time_s in enumerate(times[: self._next]):
            fabric.engine.at(time_s, self._submit, n)
        if closed:
            fabric.on_end.append(self._submit_next)

    def _submit_next(self, uid: str) -> None:
        if uid in self._uids and self._next < self._spec.runs:
            n, self._next = self._next, self._next + 1
            self._fabric.engine.after(0.0, self._submit, n)

    def _submit(self, n: int) -> None:
        spec, fabric = self._spec, self._fabric
        self.remaining -= 1
        name = self._rng.choice(spec.drawn)
        maker = PlanBuilder(
            contents=fabric.store.contents,
            hardware=self._hardware,
            catalog=fabric.catalog,
            rng=self._rng,
            variant=self._rng.randrange(spec.variants),
            rows=spec.rows,
            reuse="run" if self._sharing == "never" else "always",
            options=spec.options,
        )
        SHAPES[name](maker)
        tenant = f"team-{n % spec.tenants}"
        uid = f"load{self._number}-{n:06d}"
        plan = maker.plan(
            f"{name}-{n}",
            tenant,
            WEIGHTS[spec.optimize],
            budget_nanousd=nano_usd(spec.budget_usd),
            deadline_s=spec.deadline_s,
        )
        self._uids.add(uid)
        fabric.submit(
            Submitted(
                uid=uid,
                plan=plan,
                created_s=fabric.wall_s(),
                scopes=scopes_of(tenant, self._sharing),
                artifacts=maker.artifacts,
            )
        )


def scopes_of(tenant: str, sharing: str) -> ScopePlan:
    """Returns the scopes in which a tenant publishes and looks up."""
    if sharing == "all":
        return plan_scopes([CachePolicy("all", Sharing.ALL, namespaces=("*",))], tenant)
    if sharing == "group":
        even = CachePolicy("even", Sharing.GROUP, "even", labels={"half": "even"})
        half = "even" if int(tenant.rpartition("-")[2]) % 2 == 0 else "odd"
        return plan_scopes([even], tenant, {"half": half})
    return plan_scopes([], tenant)
