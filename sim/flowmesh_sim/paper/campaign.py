"""Runs the missing simulations and stores their results, so that it can be interrupted.

A result is a small file named by the hash of its scenario, its seed and the code that produced it,
so that results of another version of the scheduler are never shown.
"""

import json
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from multiprocessing import get_context
from pathlib import Path

from blake3 import blake3

from flowmesh_core.errors import FlowMeshError
from flowmesh_sim.paper.measure import Figures, measure
from flowmesh_sim.paper.plan import Cell, Json
from flowmesh_sim.scenario import Scenario, scenario_of

PACKAGES = ("flowmesh_api", "flowmesh_core", "flowmesh_control", "flowmesh_sim")
SAYS_ONLY = {
    "paper": {
        "__main__.py",
        "campaign.py",
        "plan.py",
        "plan.yaml",
        "page.py",
        "tables.py",
        "plots.py",
        "goals.py",
        "numbers.py",
    },
    "placement_evaluation": {
        "__main__.py",
        "loads.py",
        "objective.py",
        "plan.py",
        "reference_set.py",
        "results.py",
        "tables.py",
        "verdicts.py",
        "whole_set.py",
    },
}
"""Files of these folders that do not affect the result of a simulation."""

Measure = Callable[[Scenario, int], Figures]
"""Simulates a scenario with a seed; a function of a module, since other processes call it."""


MeasureOf = Callable[[Cell, int], Measure]


@dataclass(frozen=True, slots=True)
class CampaignJob:
    """A simulation to run."""

    label: str
    document: Json
    seed: int
    path: Path
    measure: Measure


@cache
def code_digest() -> str:
    """Returns the hash of all code that affects a simulation's result."""
    digest = blake3()
    for package in PACKAGES:
        root = Path(str(files(package)))
        for path in sorted([*root.rglob("*.py"), *root.rglob("*.yaml")]):
            if path.name in SAYS_ONLY.get(path.parent.name, ()):
                continue
            digest.update(f"{package}/{path.relative_to(root)}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


class Campaign:
    """The stored results, in a folder of small files."""

    def __init__(self, folder: Path, measure: Measure = measure) -> None:
        """Creates the folder, which belongs to one way to measure."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._measure = measure

    def path(self, cell: Cell, seed: int) -> Path:
        """Returns the path of a result, whether it exists or not."""
        key = json.dumps([cell.document, seed, code_digest()], sort_keys=True)
        return self._folder / f"{blake3(key.encode()).hexdigest()[:32]}.json"

    def found(self, cell: Cell) -> dict[int, Figures]:
        """Returns a cell's existing results by seed."""
        paths = {seed: self.path(cell, seed) for seed in cell.seeds}
        return {seed: json.loads(p.read_text()) for seed, p in paths.items() if p.exists()}

    def missing(
        self, cells: Iterable[Cell], measure_of: MeasureOf | None = None
    ) -> list[CampaignJob]:
        """Returns the missing simulations, each once even if several tables use it."""
        jobs: dict[Path, CampaignJob] = {}
        pairs = [(n, cell, seed) for cell in cells for n, seed in enumerate(cell.seeds)]
        # All cells with one seed before the next seed, so that an early end still gives a page.
        for _, cell, seed in sorted(pairs, key=lambda pair: pair[0]):
            path, label = self.path(cell, seed), f"{cell.label}, seed {seed}"
            if not path.exists():
                found = self._measure if measure_of is None else measure_of(cell, seed)
                job = CampaignJob(label, cell.document, seed, path, found)
                jobs.setdefault(path, job)
        return list(jobs.values())

    def run(
        self, cells: list[Cell], *, processes: int, measure_of: MeasureOf | None = None
    ) -> None:
        """Runs the missing simulations and prints the progress.

        Args:
            cells: the simulations.
            processes: at once.
            measure_of: returns how to measure a cell with a seed, where that is not the same for
                all.

        Raises:
            FlowMeshError: a simulation failed; names it.
        """
        jobs = self.missing(cells, measure_of)
        began_s = time.monotonic()
        if processes == 1:
            for number, job in enumerate(jobs, start=1):
                took_s = perform(job)
                _print_progress(number, len(jobs), job, took_s, began_s)
            return
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            futures = {pool.submit(perform, job): job for job in jobs}
            for number, future in enumerate(as_completed(futures), start=1):
                _print_progress(number, len(jobs), futures[future], future.result(), began_s)


def perform(job: CampaignJob) -> float:
    """Simulates and writes the result atomically; returns the seconds it took."""
    began_s = time.monotonic()
    try:
        figures = job.measure(scenario_of(job.document), job.seed)
    except FlowMeshError as e:
        raise FlowMeshError(str(e), where=job.label) from e
    part = job.path.with_suffix(".part")
    part.write_text(json.dumps(figures, indent=1, sort_keys=True))
    part.replace(job.path)
    return time.monotonic() - began_s


def _print_progress(
    number: int, count: int, job: CampaignJob, took_s: float, began_s: float
) -> None:
    left_s = (time.monotonic() - began_s) / number * (count - number)
    line = f"[{number}/{count}] {job.label}: {took_s:.1f} s; about {left_s / 60:.0f} min left"
    print(line, file=sys.stderr, flush=True)  # noqa: T201 - progress of a command
