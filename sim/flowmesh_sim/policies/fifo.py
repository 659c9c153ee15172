"""A baseline: actions in order of readiness, first fit."""

from collections import Counter

from flowmesh_core.costmodel import CostModel
from flowmesh_core.fleet.snapshot import Decision, Snapshot
from flowmesh_core.machine.state import State
from flowmesh_core.units import Digest
from flowmesh_sim.policies.filling import CapacityTracker


class Fifo:
    """Places actions in order of readiness, each on the first worker with free capacity.

    It batches actions that its order happens to place on one engine instance, and engines stay
    loaded.
    """

    def decide(self, snapshot: Snapshot, model: CostModel, state: State) -> Decision:
        """Places actions in order; one that does not fit does not block the others."""
        filling = CapacityTracker(snapshot, model, state)
        full = Counter[Digest]()
        for action in filling.due():
            if full[action.signature]:
                continue
            if not filling.place_first(action):
                full[action.signature] += not action.isolate
        return filling.decision()
