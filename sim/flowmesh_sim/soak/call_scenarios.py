"""Random worlds of services with calls: uneven loads, several routers, and faults under them.

``make soak ARGS=--calls`` simulates them. They are small, so that hundreds fit into a test: a few
workers, one workflow beside the services, some hundred calls.
"""

from random import Random
from typing import Any, Literal

from flowmesh_sim.scenario import Scenario, scenario_of

FAULTS = (
    "hub-crash",
    "hub-crash",
    "router-crash",
    "crash",
    "host-crash",
    "silence",
    "cut",
    "control-crash",
    "preempt",
)
SPAN_S = 8.0
"""How long calls and faults come."""
KINDS: tuple[Literal["poisson", "gamma", "bursts"], ...] = ("poisson", "gamma", "bursts")


def call_scenario(seed: int) -> Scenario:
    """Returns the scenario of a seed."""
    return scenario_of(call_document(seed))


def call_document(seed: int) -> dict[str, Any]:
    """Returns the scenario of a seed as plain values, as in a scenario file."""
    rng = Random(f"calls {seed}")
    return {
        "name": f"calls-{seed}",
        "seed": seed,
        "pools": [
            {
                "name": "p",
                "device": "cpu",
                "workers": rng.randint(1, 4),
                "hostMemoryMib": 4096,
            }
        ],
        "load": [
            {
                "shapes": ["sleepers"],
                "runs": rng.randint(1, 2),
                "rows": 2,
                "arrivals": {"kind": "poisson", "perMinute": 20.0},
                "options": {"seconds": 1.0},
            }
        ],
        "services": [_service(rng, n) for n in range(rng.randint(1, 2))],
        "routers": rng.randint(1, 3),
        "faults": [_fault(rng) for _ in range(rng.choice((0, 1, 2, 4)))],
        "control": {"watchdogS": 3.0, "replicas": rng.random() < 0.5},  # noqa: PLR2004 - a share
        "limitS": 3600.0,
    }


def _service(rng: Random, number: int) -> dict[str, Any]:
    least = rng.randint(1, 2)
    return {
        "name": f"ask-{number}",
        "replicas": least,
        "most": least + rng.randint(0, 2),
        "memoryMib": rng.choice((500, 1500)),
        "untilS": SPAN_S + rng.choice((5.0, 20.0)),
        "calls": {
            "perSecond": rng.choice((2.0, 8.0, 16.0)),
            "forS": SPAN_S,
            "kind": rng.choice(KINDS),
            "units": rng.choice((5.0, 20.0)),
            "deadlineS": rng.choice((1.0, 5.0)),
            "cancelled": rng.choice((0.0, 0.1)),
            "tenants": rng.randint(1, 3),
            "callsMax": rng.choice((1, 4, 8)),
        },
    }


def _fault(rng: Random) -> dict[str, Any]:
    return {
        "kind": rng.choice(FAULTS),
        "atS": rng.uniform(0.5, SPAN_S + 2.0),
        "forS": rng.choice((0.5, 2.0)),
    }
