"""The seam between the simulated control plane and whoever decides.

A policy sees what ``decide`` sees and, read only, the machine's state behind it, so that a baseline
may go by whole workflows. What it returns is applied by the same machine: constraints, money and
recovery are the same for all.
"""

from typing import Protocol

from flowmesh_core.costmodel import CostModel
from flowmesh_core.fleet.snapshot import Decision, Snapshot
from flowmesh_core.machine.state import State


class Policy(Protocol):
    """Decides on a snapshot."""

    def decide(self, snapshot: Snapshot, model: CostModel, state: State) -> Decision:
        """Placements of ready actions; the state is to be read only."""
        ...
