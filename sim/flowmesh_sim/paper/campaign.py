"""Simulates what is missing, keeps every result, and goes on where it was broken off.

A result is a small file named by the hash of its scenario, its seed and the code that made it, so
that nothing is ever shown of another scheduler than the one at hand.
"""

import json
import sys
import time
from collections.abc import Iterable
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
from flowmesh_sim.scenario import scenario_of

PACKAGES = ("flowmesh_api", "flowmesh_core", "flowmesh_control", "flowmesh_sim")
SAYS_ONLY = {
    "__main__.py",
    "campaign.py",
    "plan.py",
    "plan.yaml",
    "page.py",
    "tables.py",
    "figures.py",
    "goals.py",
    "numbers.py",
}
"""Files of this package that change nothing of what a simulation gives."""


@dataclass(frozen=True, slots=True)
class CampaignJob:
    """A simulation that is to be made."""

    label: str
    document: Json
    seed: int
    path: Path


@cache
def code_digest() -> str:
    """Names all code that a simulation's result depends on."""
    digest = blake3()
    for package in PACKAGES:
        root = Path(str(files(package)))
        for path in sorted([*root.rglob("*.py"), *root.rglob("*.yaml")]):
            if path.parent.name == "paper" and path.name in SAYS_ONLY:
                continue
            digest.update(f"{package}/{path.relative_to(root)}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


class Campaign:
    """The results there are, in a folder of small files."""

    def __init__(self, folder: Path) -> None:
        """Takes the folder; it is made."""
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder

    def path(self, cell: Cell, seed: int) -> Path:
        """Where a result lies, or will."""
        said = json.dumps([cell.document, seed, code_digest()], sort_keys=True)
        return self._folder / f"{blake3(said.encode()).hexdigest()[:32]}.json"

    def found(self, cell: Cell) -> dict[int, Figures]:
        """Its results by seed, as far as there are any."""
        paths = {seed: self.path(cell, seed) for seed in cell.seeds}
        return {seed: json.loads(p.read_text()) for seed, p in paths.items() if p.exists()}

    def missing(self, cells: Iterable[Cell]) -> list[CampaignJob]:
        """What is still to be simulated, each once though several tables show it."""
        jobs: dict[Path, CampaignJob] = {}
        pairs = [(n, cell, seed) for cell in cells for n, seed in enumerate(cell.seeds)]
        # Every cell at one seed before any at the next: what is broken off early is still a page.
        for _, cell, seed in sorted(pairs, key=lambda pair: pair[0]):
            path, label = self.path(cell, seed), f"{cell.label}, seed {seed}"
            if not path.exists():
                jobs.setdefault(path, CampaignJob(label, cell.document, seed, path))
        return list(jobs.values())

    def run(self, cells: list[Cell], *, processes: int) -> None:
        """Simulates what is missing, saying how far it is.

        Raises:
            FlowMeshError: a simulation broke; says which.
        """
        jobs = self.missing(cells)
        began_s = time.monotonic()
        if processes == 1:
            for number, job in enumerate(jobs, start=1):
                took_s = perform(job)
                _say(number, len(jobs), job, took_s, began_s)
            return
        with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
            futures = {pool.submit(perform, job): job for job in jobs}
            for number, future in enumerate(as_completed(futures), start=1):
                _say(number, len(jobs), futures[future], future.result(), began_s)


def perform(job: CampaignJob) -> float:
    """Simulates, writes the result whole or not at all, and says how long it took."""
    began_s = time.monotonic()
    try:
        figures = measure(scenario_of(job.document), job.seed)
    except FlowMeshError as e:
        raise FlowMeshError(str(e), where=job.label) from e
    part = job.path.with_suffix(".part")
    part.write_text(json.dumps(figures, indent=1, sort_keys=True))
    part.replace(job.path)
    return time.monotonic() - began_s


def _say(number: int, many: int, job: CampaignJob, took_s: float, began_s: float) -> None:
    left_s = (time.monotonic() - began_s) / number * (many - number)
    line = f"[{number}/{many}] {job.label}: {took_s:.1f} s; about {left_s / 60:.0f} min left"
    print(line, file=sys.stderr, flush=True)  # noqa: T201 - progress of a command
