"""Hashes of the traces of simulations, which show whether a simulation has changed.

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
    """Returns the names of all examples."""
    return sorted(path.stem for path in EXAMPLES.glob("*.yaml"))


def example_trace(name: str) -> str:
    """Returns the hash of an example's trace."""
    return simulate(read_scenario(EXAMPLES / f"{name}.yaml")).trace


def soak_trace(seed: int) -> str:
    """Returns the hash of the trace of a seed's scenario, and the violation if there is one."""
    outcome = run_checked_world(seed)
    return outcome.trace + outcome.broken


def read_traces() -> Traces:
    """Returns the recorded hashes."""
    return msgspec.json.decode(TRACES.read_bytes(), type=Traces)


def write_traces() -> None:
    """Records the hashes again."""
    traces = Traces(
        examples={name: example_trace(name) for name in example_names()},
        soak={str(seed): soak_trace(seed) for seed in SEEDS},
    )
    TRACES.write_bytes(msgspec.json.format(msgspec.json.encode(traces), indent=2) + b"\n")
