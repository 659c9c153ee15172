"""Draws the loads and the seeds of the evaluation from the scheduler's last commit.

Whoever changes the scheduler does not know the loads that it is judged on: another commit draws
others. A third of the loads and all evaluation seeds stay unseen until the end.
"""

import subprocess
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any

from flowmesh_core.errors import FlowMeshError
from flowmesh_sim.kernel.constants import read_constants
from flowmesh_sim.kernel.environment import RandomStreams
from flowmesh_sim.scenario import GROUPS

Json = dict[str, Any]
SCHEDULER = tuple(
    f"core/flowmesh_core/{part}"
    for part in (
        "placement",
        "autoscaling",
        "costmodel",
        "fleet",
        "machine/fleet_snapshot.py",
        "machine/prewarm.py",
        "machine/stragglers.py",
    )
)
"""A commit that changes one of these draws the loads anew."""
FLEET = ("h100-nvl", "4090-48", "4090")
"""The classes of devices of the paper's six workers, dearest first."""
OTHER_DEVICES = ("h100", "a100", "l40s", "4090-48", "4090")
STARTS = ("pod", "pull", "lease")
"""How workers of other devices may start: 3 s with the image present, 63 s with its pull, 45 s."""
LARGE_GIB = 70.0
"""Memory of a device that runs every step of group B: PPO needs 49 GiB."""
SEEN_SEEDS, EVALUATION_SEEDS = 3, 5
UNSEEN_PART = 3
"""One in so many loads is held back."""


@dataclass(frozen=True, slots=True)
class EvaluationLoad:
    """A load on a fleet of a largest size.

    Attributes:
        kind: what it shows, in words.
        load: as in a scenario.
        devices: the classes of the fleet, dearest first; ``workers`` are divided among them.
        start: how a worker starts: as in a scenario.
        unseen: whether it is held back until the end.
    """

    name: str
    kind: str
    load: tuple[Json, ...]
    devices: tuple[str, ...]
    workers: int
    start: str = "pod"
    unseen: bool = False

    def subsets(self) -> list[tuple[str, ...]]:
        """Returns the subsets of the classes that can run every step, the whole fleet first."""
        shapes = {s for part in self.load for name in part["shapes"] for s in GROUPS[name]}
        least_gib = LARGE_GIB if any(s.startswith("b-") for s in shapes) else 0.0
        devices = read_constants().table
        able = {d for d in self.devices if devices[f"devices.{d}.memory_gib"].value >= least_gib}
        sizes = range(len(self.devices), 0, -1)
        found = [chosen for size in sizes for chosen in combinations(self.devices, size)]
        return [chosen for chosen in found if able.intersection(chosen)]


@dataclass(frozen=True, slots=True)
class EvaluationDraw:
    """The loads and seeds that belong to one version of the scheduler."""

    scheduler: str
    loads: tuple[EvaluationLoad, ...]
    seen_seeds: tuple[int, ...]
    evaluation_seeds: tuple[int, ...]

    def seen(self) -> list[EvaluationLoad]:
        """Returns the loads that may be looked at while the scheduler is changed."""
        return [load for load in self.loads if not load.unseen]


def scheduler_commit(root: Path) -> str:
    """Returns the hash of the last commit that changed the scheduler.

    Raises:
        FlowMeshError: the folder is no clone with this history.
    """
    command = ["git", "log", "-1", "--format=%H", "--", *SCHEDULER]
    try:
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as e:
        raise FlowMeshError("needs git and a clone of the repository", where=str(root)) from e
    if not done.stdout.strip():
        raise FlowMeshError("the history has no commit of the scheduler", where=str(root))
    return done.stdout.strip()


def draw(scheduler: str) -> EvaluationDraw:
    """Draws the loads and seeds of a version of the scheduler; equal hashes give equal draws."""
    streams = RandomStreams(f"placement evaluation of {scheduler}")
    loads = [_load(name, streams.fresh(name)) for name in KINDS]
    unseen = set(streams.fresh("unseen").sample(list(KINDS), len(KINDS) // UNSEEN_PART))
    seeds = streams.fresh("seeds").sample(range(1000, 1_000_000), SEEN_SEEDS + EVALUATION_SEEDS)
    return EvaluationDraw(
        scheduler,
        tuple(replace(x, unseen=x.name in unseen) for x in loads),
        tuple(seeds[:SEEN_SEEDS]),
        tuple(seeds[SEEN_SEEDS:]),
    )


def _load(name: str, rng: Random) -> EvaluationLoad:
    kind, make = KINDS[name]
    parts, devices, workers = make(rng)
    start = "pod" if devices == FLEET else rng.choice(STARTS)
    return EvaluationLoad(name, kind, tuple(parts), devices, workers, start)


# -- kinds of loads ------------------------------------------------------------------------------

Drawn = tuple[list[Json], tuple[str, ...], int]


def _part(rng: Random, shapes: tuple[str, ...], runs: int, arrivals: Json, **more: Any) -> Json:
    rows = 24 if shapes == ("group-a",) else 12
    found = {"rows": rows, "variants": rng.randrange(50, 201), "tenants": rng.randrange(2, 7)}
    return {"shapes": list(shapes), "runs": runs, **found, "arrivals": arrivals, **more}


def _poisson(rng: Random, low: float, high: float) -> Json:
    return {"kind": "poisson", "perMinute": round(rng.uniform(low, high), 2)}


def _closed(rng: Random, low: int, high: int) -> Json:
    return {"kind": "closed", "concurrent": rng.randint(low, high)}


def _steady(rng: Random) -> Drawn:
    return [_part(rng, A, rng.randint(80, 120), _poisson(rng, 2.5, 3.5))], FLEET, 6


def _bursts(rng: Random) -> Drawn:
    second_s = float(rng.randint(900, 2400))
    times = ({"kind": "at-once"}, {"kind": "at-once", "afterS": second_s})
    return [_part(rng, A, rng.randint(35, 45), at) for at in times], FLEET, 6


def _mixed(rng: Random) -> Drawn:
    return [_part(rng, A_AND_B, rng.randint(50, 80), _poisson(rng, 1.5, 2.5))], FLEET, 6


def _few_slices(rng: Random) -> Drawn:
    arrivals = _poisson(rng, 2.5, 3.5)
    slices = rng.randint(6, 10)
    return [_part(rng, A, rng.randint(80, 120), arrivals, variants=slices)], FLEET, 6


def _distinct(rng: Random) -> Drawn:
    arrivals = _poisson(rng, 2.5, 3.5)
    return [_part(rng, A, rng.randint(80, 120), arrivals, variants=1_000_000)], FLEET, 6


def _saturated_a(rng: Random) -> Drawn:
    return [_part(rng, A, rng.randint(150, 200), _closed(rng, 44, 52))], FLEET, 6


def _saturated_a_and_b(rng: Random) -> Drawn:
    return [_part(rng, A_AND_B, rng.randint(80, 120), _closed(rng, 28, 36))], FLEET, 6


def _diurnal(rng: Random) -> Drawn:
    """Three sizes of rows, the larger the rarer, over a day that is shortened to hours."""
    arrivals = {
        "kind": "diurnal",
        "perMinute": round(rng.uniform(2.5, 4.0), 2),
        "toPerMinute": round(rng.uniform(0.1, 0.3), 2),
        "periodS": float(rng.randint(5400, 9000)),
    }
    runs = rng.randint(100, 140)
    sizes = ((12, 1.0), (96, 0.2), (384, 0.04))
    return (
        [
            _part(rng, A, round(runs * share), {**arrivals, **_scaled(arrivals, share)}, rows=rows)
            for rows, share in sizes
        ],
        FLEET,
        6,
    )


def _scaled(arrivals: Json, share: float) -> Json:
    return {key: round(arrivals[key] * share, 4) for key in ("perMinute", "toPerMinute")}


def _other_devices(rng: Random) -> tuple[str, ...]:
    """Returns three classes, dearest first, of which one at least runs group B."""
    large = rng.choice(OTHER_DEVICES[:2])
    others = [d for d in OTHER_DEVICES if d != large]
    return tuple(sorted([large, *rng.sample(others, 2)], key=OTHER_DEVICES.index))


def _other_steady(rng: Random) -> Drawn:
    parts = [_part(rng, A, rng.randint(80, 120), _poisson(rng, 1.5, 4.0))]
    return parts, _other_devices(rng), 3 * rng.randint(1, 4)


def _other_mixed(rng: Random) -> Drawn:
    parts = [_part(rng, A_AND_B, rng.randint(50, 80), _poisson(rng, 1.0, 3.0))]
    return parts, _other_devices(rng), 3 * rng.randint(1, 4)


def _wide_a(rng: Random) -> Drawn:
    parts = [_part(rng, A, rng.randint(150, 250), _closed(rng, 48, 80), rows=96)]
    return parts, _other_devices(rng), 3 * rng.randint(3, 16)


def _wide_a_and_b(rng: Random) -> Drawn:
    parts = [_part(rng, A_AND_B, rng.randint(100, 150), _poisson(rng, 6.0, 12.0))]
    return parts, _other_devices(rng), 3 * rng.randint(3, 16)


A, A_AND_B = ("group-a",), ("group-a", "group-b")
KINDS: dict[str, tuple[str, Callable[[Random], Drawn]]] = {
    "steady-a": ("group A at a steady rate, about 3 a minute", _steady),
    "bursts-a": ("group A, two bursts of about 40", _bursts),
    "mixed": ("groups A and B mixed, about 2 a minute", _mixed),
    "few-slices": ("group A from about 8 distinct slices", _few_slices),
    "distinct": ("group A, all distinct", _distinct),
    "saturated-a": ("group A, about 48 at a time", _saturated_a),
    "saturated-mixed": ("groups A and B, about 32 at a time", _saturated_a_and_b),
    "diurnal": ("group A by day and night, sizes with a heavy tail", _diurnal),
    "devices-a": ("group A, other devices", _other_steady),
    "devices-mixed": ("groups A and B mixed, other devices", _other_mixed),
    "wide-a": ("group A, four times the rows, 9 to 48 workers", _wide_a),
    "wide-mixed": ("groups A and B mixed, 9 to 48 workers", _wide_a_and_b),
}
"""By name: the load in words, and what draws it."""
