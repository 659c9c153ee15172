"""Random worlds by the thousand: workflows, tenants, fleets and faults of a seed, each to its end.

``python -m flowmesh_sim.soak --seeds 0-999`` (or ``make soak``) simulates one world a seed with all
invariants checked and names the seeds that break one; ``--replay N`` tells a world's story. Faults
end before the world does, so every run has to end too.
"""

import argparse
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

from flowmesh_sim.invariants import Checker
from flowmesh_sim.scenario import Scenario, scenario_of
from flowmesh_sim.simulation import Simulation

LIMIT_S = 6 * 3600.0
"""A run that has not ended after so much virtual time is lost."""
HOST_SHAPES = (
    "noop-flat",
    "noop-chain",
    "noop-diamond",
    "map-stream",
    "steps",
    "sleepers",
    "mixed",
)
TOKEN_SHAPES = ("a-chain", "a-rag", "a-debate", "a-vote", "a-agents", "b-sft", "b-dpo", "b-tight")
DEVICES = ("h100-nvl", "h100", "a100", "l40s", "4090", "4090-48")
FAILURES = ("engine", "host-crashed", "out-of-memory", "bad-input", "store", "preempted")
FAULTS = (
    "crash",
    "preempt",
    "silence",
    "cut",
    "slow",
    "host-crash",
    "store-down",
    "store-errors",
    "store-slow",
    "lose-blob",
    "clock-step",
    "control-crash",
    "stale-leader",
    "engine-errors",
    "cancel",
)


def random_scenario(seed: int) -> Scenario:
    """The world of a seed."""
    rng = Random(f"soak {seed}")
    tokens = rng.random() < 0.4  # noqa: PLR2004 - a share
    span_s = rng.choice((100.0, 400.0)) if tokens else rng.choice((3.0, 10.0, 40.0))
    document: dict[str, Any] = {
        "name": f"soak-{seed}",
        "seed": seed,
        "pools": [_pool(rng, n, tokens) for n in range(rng.randint(1, 3))],
        "load": [_load(rng, tokens, span_s) for _ in range(rng.randint(1, 2))],
        "faults": [_fault(rng, span_s) for _ in range(rng.choice((0, 2, 4, 8, 16)))],
        "sharing": rng.choice(("private", "group", "all", "all")),
        "control": {
            "watchdogS": rng.choice((3.0, 10.0, 10.0)),
            "syncIntervalS": rng.choice((0.5, 1.0)),
            "replicas": rng.random() < 0.8,  # noqa: PLR2004 - a share
        },
        "limitS": LIMIT_S,
    }
    # Whatever happens to the others, there is a worker that everything fits on.
    document["pools"].append({"name": "safe", "device": "h100-nvl", "workers": 1})
    return scenario_of(document)


def _pool(rng: Random, number: int, tokens: bool) -> dict[str, Any]:
    device = rng.choice(DEVICES) if tokens else rng.choice(("cpu", "cpu", "4090"))
    workers = rng.randint(0, 3)
    grows = rng.random() < 0.3  # noqa: PLR2004 - a share
    return {
        "name": f"pool-{number}",
        "device": device,
        "workers": workers,
        "devices": rng.choice((1, 1, 2)) if device != "cpu" else 1,
        "hostMemoryMib": rng.choice((512, 4096, 131072)),
        "autoscale": grows,
        "maximum": workers + 2 if grows else 0,
        "calmS": rng.choice((10.0, 120.0)),
        "start": rng.choice(("pod", "lease")),
        "latencyS": rng.choice((0.001, 0.02, 0.15)),
    }


def _load(rng: Random, tokens: bool, span_s: float) -> dict[str, Any]:
    shapes = rng.sample(TOKEN_SHAPES if tokens else HOST_SHAPES, k=rng.randint(1, 4))
    runs = rng.randint(1, 8) if tokens else rng.randint(1, 25)
    return {
        "shapes": shapes,
        "runs": runs,
        "rows": rng.choice((1, 8, 40)) if tokens else rng.choice((1, 5, 40, 100)),
        "variants": rng.choice((1, 2, 50)),
        "tenants": rng.randint(1, 4),
        "optimize": rng.choice(("balanced", "cost", "throughput", "latency")),
        "budgetUsd": rng.choice((0.0, 0.0, 0.0, 0.0001, 0.5)),
        "deadlineS": rng.choice((0.0, 0.0, 0.0, span_s)),
        "arrivals": rng.choice(
            (
                {"kind": "at-once"},
                {"kind": "poisson", "perMinute": max(0.1, 60.0 * runs / span_s)},
                {"kind": "closed", "concurrent": rng.randint(1, 4)},
            )
        ),
        "options": {"seconds": rng.choice((0.0, 0.5, 2.0, 10.0)), "steps": rng.randint(1, 4)},
    }


def _fault(rng: Random, span_s: float) -> dict[str, Any]:
    kind = rng.choice(FAULTS)
    return {
        "kind": kind,
        "atS": rng.uniform(0.0, span_s),
        "forS": rng.choice((0.5, 5.0, 30.0)),
        "share": rng.choice((0.1, 0.5, 1.0)) if kind == "engine-errors" else rng.choice((0.1, 0.5)),
        "factor": rng.choice((2.0, 10.0)),
        "stepS": rng.choice((-3600.0, -5.0, 5.0, 3600.0)),
        "failure": rng.choice(FAILURES),
    }


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a seed.

    Attributes:
        broken: the invariant that does not hold, with its place; empty where all do.
    """

    seed: int
    broken: str
    trace: str
    runs: int
    events: int
    faults: int


def soak_one(seed: int, *, every: int = 5) -> Outcome:
    """Simulates the world of a seed with the whole state looked at every so many events."""
    simulation = Simulation(random_scenario(seed), checker=Checker(every=every))
    broken = ""
    try:
        simulation.run()
    except Exception as e:
        last = traceback.extract_tb(e.__traceback__)[-1]
        broken = f"{type(e).__name__}: {e} ({last.filename.rpartition('/')[2]}:{last.lineno})"
    return Outcome(
        seed=seed,
        broken=broken,
        trace=simulation.trace.digest,
        runs=len(simulation.fabric.wanted),
        events=simulation.fabric.engine.events,
        faults=simulation.faults.struck,
    )


def seeds_of(text: str) -> Iterator[int]:
    """``1000`` is the first thousand; ``a-b`` is from a to b, both included.

    Raises:
        argparse.ArgumentTypeError: it is neither.
    """
    first, dash, last = text.partition("-")
    if not (first.isdigit() and (last.isdigit() or not dash)):
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number of seeds nor a-b")
    return iter(range(int(first), int(last) + 1)) if dash else iter(range(int(first)))


def main() -> None:
    """Soaks; exits with 1 where a seed broke an invariant."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=seeds_of, default="200", help="how many, or a-b")
    parser.add_argument("--within-s", type=float, default=0.0, help="stop after so long; 0 never")
    parser.add_argument("--replay", type=int, default=None, help="one seed, with its traceback")
    options = parser.parse_args()
    if options.replay is not None:
        Simulation(random_scenario(options.replay), checker=Checker(every=1)).run()
        return
    began = time.perf_counter()
    done: list[Outcome] = []
    for seed in options.seeds:
        if options.within_s and time.perf_counter() - began > options.within_s:
            break
        done.append(soak_one(seed))
        if done[-1].broken:
            print(f"seed {seed}: {done[-1].broken}", flush=True)  # noqa: T201 - its one purpose
    took_s = time.perf_counter() - began
    bad = [o.seed for o in done if o.broken]
    last = f"up to {done[-1].seed}, " if done else ""
    print(  # noqa: T201 - as above
        f"{len(done)} seeds, {last}{sum(o.runs for o in done)} runs, "
        f"{sum(o.faults for o in done)} faults, {sum(o.events for o in done)} events in "
        f"{took_s:.1f} s; {len(bad)} broken: {bad}"
    )
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
