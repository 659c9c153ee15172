"""Generates a random scenario from a seed: workflows, tenants, workers and faults.

Half of the scenarios are small, since most errors need only a few runs; some are an order of
magnitude larger. Faults end before the simulation, so every run must end too.
"""

from random import Random
from typing import Any, get_args

from flowmesh_sim.scenario import CALL_FAULTS, FaultKind, Scenario, scenario_of

LIMIT_S = 6 * 3600.0
"""A run that has not ended after this virtual time counts as lost."""
SAFE = "safe"
"""A pool with a worker on which everything fits."""
HOST_SHAPES = (
    "noop-flat",
    "noop-chain",
    "noop-diamond",
    "map-stream",
    "steps",
    "sleepers",
    "mixed",
    "private",
)
TOKEN_SHAPES = ("a-chain", "a-rag", "a-debate", "a-vote", "a-agents", "b-sft", "b-dpo", "b-tight")
DEVICES = ("h100-nvl", "h100", "a100", "l40s", "4090", "4090-48")
FAILURES = ("engine", "host-crashed", "out-of-memory", "bad-input", "store", "preempted")
SERVICES_EVERY, SERVICES_FROM = 10, 20
"""Of this many seeds, the eighth has services too; none before the recorded seeds end."""
CONDITIONS_EVERY = 10
"""Of this many seeds, the last has workflows with conditions too."""
FAULTS: tuple[str, ...] = tuple(k for k in get_args(FaultKind) if k not in CALL_FAULTS)
SMALL = 0.5
"""The share of scenarios with a few runs of a few rows."""
TOKENS = 0.4
"""The share of scenarios with models on devices."""


def random_scenario(seed: int) -> Scenario:
    """Returns the scenario of a seed."""
    return scenario_of(random_document(seed))


def random_document(seed: int) -> dict[str, Any]:
    """Returns the scenario of a seed as plain values, as in a scenario file."""
    rng = Random(f"soak {seed}")
    tokens, small = rng.random() < TOKENS, rng.random() < SMALL
    span_s = rng.choice((100.0, 400.0)) if tokens else rng.choice((3.0, 10.0, 40.0))
    faults = rng.choice((0, 1, 2, 4)) if small else rng.choice((0, 2, 4, 8, 16))
    return {
        "name": f"soak-{seed}",
        "seed": seed,
        "pools": [
            *(_pool(rng, n, tokens) for n in range(rng.randint(1, 3))),
            {"name": SAFE, "device": "h100-nvl", "workers": 1},
        ],
        "load": [
            *(_load(rng, tokens, small, span_s) for _ in range(rng.randint(1, 2))),
            *_conditions(seed, span_s),
        ],
        "faults": [_fault(rng, span_s) for _ in range(faults)],
        "services": _services(seed, span_s),
        "sharing": rng.choice(("private", "group", "all", "all")),
        "control": {
            "watchdogS": rng.choice((3.0, 10.0, 10.0)),
            "syncIntervalS": rng.choice((0.5, 1.0)),
            "replicas": rng.random() < 0.8,  # noqa: PLR2004 - a share
            "resultTtlS": rng.choice((30 * 86400.0, 600.0, 20.0)),
            "graceS": rng.choice((120.0, 600.0)),
        },
        "limitS": LIMIT_S,
    }


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
        "stabilizationS": rng.choice((10.0, 120.0)),
        "start": rng.choice(("pod", "lease")),
        "latencyS": rng.choice((0.001, 0.02, 0.15)),
    }


def _load(rng: Random, tokens: bool, small: bool, span_s: float) -> dict[str, Any]:
    shapes = rng.sample(TOKEN_SHAPES if tokens else HOST_SHAPES, k=rng.randint(1, 4))
    runs = rng.randint(1, 4 if small else 8 if tokens else 25)
    rows = (1, 5, 8) if small else (1, 8, 40) if tokens else (1, 5, 40, 100)
    return {
        "shapes": shapes,
        "runs": runs,
        "rows": rng.choice(rows),
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


def _conditions(seed: int, span_s: float) -> list[dict[str, Any]]:
    if seed % CONDITIONS_EVERY != CONDITIONS_EVERY - 1:
        return []
    per_minute = 5 * 60.0 / span_s
    arrivals = {"kind": "poisson", "perMinute": per_minute}
    return [{"shapes": ["conditional"], "runs": 5, "rows": 10, "variants": 2, "arrivals": arrivals}]


def _services(seed: int, span_s: float) -> list[dict[str, Any]]:
    """Services that end with the faults: work that needs their memory then goes on."""
    if seed < SERVICES_FROM or seed % SERVICES_EVERY != 7:  # noqa: PLR2004 - see above
        return []
    rng = Random(f"services {seed}")
    return [
        {
            "name": f"service-{n}",
            "replicas": rng.randint(1, 3),
            "memoryMib": rng.choice((300, 2000, 30_000)),
            "atS": rng.uniform(0.0, span_s / 2),
            "untilS": rng.uniform(span_s / 2, span_s) + 10.0,
        }
        for n in range(rng.randint(1, 3))
    ]


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
