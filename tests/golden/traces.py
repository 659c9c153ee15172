"""Hashes of all that happens in simulated worlds: a number for each says whether one has changed.

They hold floating-point sums, so they are those of Linux with the C library's ``exp`` and ``log``
that CI has, as the goldens of the machine are.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from flowmesh_sim.run.simulation import simulate
from flowmesh_sim.scenario import read_scenario
from flowmesh_sim.soak.checked_world import run_checked_world

EXAMPLES = Path(__file__).parents[2] / "examples" / "simulate"
TRACES = Path(__file__).parent / "scenarios.json"
SEEDS = range(20)


class Traces(msgspec.Struct, frozen=True):
    """``scenarios.json``.

    Attributes:
        examples: by name of a file of ``examples/simulate``, the hash of its trace.
        soak: the same by seed.
    """

    examples: Mapping[str, str]
    soak: Mapping[str, str]


def example_names() -> list[str]:
    """The names of all examples."""
    return sorted(path.stem for path in EXAMPLES.glob("*.yaml"))


def example_trace(name: str) -> str:
    """The hash of what happens in an example."""
    return simulate(read_scenario(EXAMPLES / f"{name}.yaml")).trace


def soak_trace(seed: int) -> str:
    """The hash of what happens in the random world of a seed, and what it breaks, if anything."""
    outcome = run_checked_world(seed)
    return outcome.trace + outcome.broken


def read_traces() -> Traces:
    """The recorded hashes."""
    return msgspec.json.decode(TRACES.read_bytes(), type=Traces)


def write_traces() -> None:
    """Records the hashes anew."""
    traces = Traces(
        examples={name: example_trace(name) for name in example_names()},
        soak={str(seed): soak_trace(seed) for seed in SEEDS},
    )
    TRACES.write_bytes(msgspec.json.format(msgspec.json.encode(traces), indent=2) + b"\n")
