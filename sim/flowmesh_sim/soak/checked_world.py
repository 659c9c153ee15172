"""Simulates one scenario with all invariants checked, and returns the outcome."""

import re
import traceback
from dataclasses import dataclass

from flowmesh_sim.invariants.checker import Checker
from flowmesh_sim.kernel import violation
from flowmesh_sim.run.simulation import Simulation
from flowmesh_sim.scenario import Scenario
from flowmesh_sim.soak.call_scenarios import call_scenario
from flowmesh_sim.soak.random_scenarios import random_scenario

_PARTICULAR = re.compile(r"'[^']*'|\[[^\]]*\]|\{[^}]*\}|\b[0-9a-f]{8,}\b|\S*\d\S*")


@dataclass(frozen=True, slots=True)
class WorldOutcome:
    """The outcome of a checked simulation.

    Attributes:
        broken: the violated invariant with its place; empty if there is none.
        trace: the hash of all events until then.
    """

    seed: int
    broken: str
    trace: str
    runs: int
    events: int
    faults: int

    @property
    def kind(self) -> str:
        """The violated invariant without names of runs and workers and without numbers."""
        return " ".join(_PARTICULAR.sub("*", self.broken).split())


def run_checked(scenario: Scenario, *, every: int | None = None) -> WorldOutcome:
    """Simulates a scenario; ``every`` is as for ``Checker``."""
    simulation = Simulation(scenario, checker=Checker(every))
    broken = ""
    try:
        simulation.run()
    except Exception as e:
        frames = traceback.extract_tb(e.__traceback__)
        last = next(f for f in reversed(frames) if f.filename != violation.__file__)
        place = f"{last.filename.rpartition('/')[2]}:{last.lineno}"
        broken = f"{type(e).__name__}: {e} ({place})"
    return WorldOutcome(
        seed=scenario.seed,
        broken=broken,
        trace=simulation.trace.digest,
        runs=len(simulation.fabric.submitted_s),
        events=simulation.fabric.engine.events,
        faults=simulation.faults.struck,
    )


def run_checked_world(seed: int, *, every: int | None = None) -> WorldOutcome:
    """Simulates the random scenario of a seed."""
    return run_checked(random_scenario(seed), every=every)


def run_checked_calls(seed: int) -> WorldOutcome:
    """Simulates the world of services with calls of a seed."""
    return run_checked(call_scenario(seed))
