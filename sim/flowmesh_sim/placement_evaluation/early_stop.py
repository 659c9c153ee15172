"""Stops the simulation of a member once it cannot change what the rules say of the members.

Bill and latencies only grow while a simulation goes on. So a member that is already neither better
than the shipped policy nor as good as the best member known can be stopped: what it has come to is
less than its figures would be, and enough to pass it over.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from flowmesh_sim.paper.bound import HOUR_S
from flowmesh_sim.paper.measure import Figures
from flowmesh_sim.placement_evaluation.objective import FACTORS, OBJECTIVE
from flowmesh_sim.run.simulation import Simulation

CHECK_S = 30.0
"""Virtual seconds between two looks at what a simulation has come to."""
BETTER = 1.05
"""A member is better than the shipped policy if that has so much more of both."""


class StoppedEarly(Exception):  # noqa: N818 - no error: it ends a simulation
    """A simulation has come to enough.

    Attributes:
        figures: that it has come to; ``stopped_s`` is when.
    """

    def __init__(self, figures: Figures) -> None:
        super().__init__("stopped early")
        self.figures = figures


@dataclass(frozen=True, slots=True)
class MemberLimits:
    """What a member must stay below.

    Attributes:
        usd, latencies_s: it is better than the shipped policy while it stays below both.
        objectives: by factor of the value of time, the least objective of the known members.
    """

    usd: float
    latencies_s: float
    objectives: tuple[tuple[float, float], ...]

    def are_passed(self, figures: Figures) -> bool:
        """Whether figures that can only grow are neither better nor the best."""
        if figures["usd"] < self.usd and figures["latencies_s"] < self.latencies_s:
            return False
        return all(OBJECTIVE.times(f).of(figures) > least for f, least in self.objectives)


def limits_of(shipped: Figures, members: Iterable[Figures]) -> MemberLimits:
    """Returns the limits for further members of a load with one seed.

    Args:
        shipped: the shipped policy's figures.
        members: of members that were simulated to the end; at least one.
    """
    known = list(members)
    objectives = ((f, min(OBJECTIVE.times(f).of(one) for one in known)) for f in FACTORS)
    return MemberLimits(shipped["usd"] / BETTER, shipped["latencies_s"] / BETTER, tuple(objectives))


def watch(simulation: Simulation, limits: MemberLimits) -> None:
    """Has a simulation raise :class:`StoppedEarly` once the limits are passed."""
    engine = simulation.fabric.engine

    def look() -> None:
        figures = _so_far(simulation)
        if limits.are_passed(figures):
            raise StoppedEarly(figures)
        engine.after(CHECK_S, look)

    engine.after(CHECK_S, look)


def _so_far(simulation: Simulation) -> Figures:
    now_s, measures = simulation.fabric.engine.now_s, simulation.measures
    usd = sum(
        w.shape.price_nanousd_per_hour
        / 1e9
        / HOUR_S
        * max(0.0, (w.left_s if w.gone else now_s) - w.billed_since_s)
        for w in measures.workers
    )
    latencies_s = sum(
        (measures.statuses[uid][1] if uid in measures.statuses else now_s) - submitted_s
        for uid, submitted_s in simulation.fabric.submitted_s.items()
    )
    runs = float(sum(part.runs for part in simulation.scenario.load))
    return {
        "usd": usd,
        "latencies_s": latencies_s,
        "latency_s": latencies_s / runs,
        "runs": runs,
        "stopped_s": now_s,
    }
