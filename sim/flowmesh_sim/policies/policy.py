"""The interface between the simulated control plane and a scheduling policy.

A policy gets the same snapshot as ``decide`` and, read-only, the machine's state, so that a
baseline may schedule whole workflows. Its decision is applied by the same machine: constraints,
money and recovery are equal for all policies.
"""

from typing import Protocol

from flowmesh_core.costmodel import CostModel
from flowmesh_core.fleet.snapshot import Decision, Snapshot
from flowmesh_core.machine.state import State


class Policy(Protocol):
    """A scheduling policy."""

    def decide(self, snapshot: Snapshot, model: CostModel, state: State) -> Decision:
        """Returns placements of ready actions; it must not change the state."""
        ...
