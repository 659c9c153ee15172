"""The ablation of multi-objective scheduling: a random worker with free capacity."""

from random import Random

from flowmesh_core.costmodel import CostModel
from flowmesh_core.fleet.snapshot import Decision, Snapshot
from flowmesh_core.machine.state import State
from flowmesh_sim.policies.filling import CapacityTracker


class RandomPlacement:
    """Places actions in order of readiness, each on a random worker with free capacity.

    Batching, reuse and elasticity stay: only the utility is removed.
    """

    def __init__(self) -> None:
        """Seeds the choices, so that equal simulations are equal."""
        self._rng = Random(0)

    def decide(self, snapshot: Snapshot, model: CostModel, state: State) -> Decision:
        """Places every action that fits on any worker."""
        filling = CapacityTracker(snapshot, model, state)
        for action in filling.due():
            found = [
                a
                for a in filling.accounts
                if filling.able(a, action) and filling.has_capacity(a, action)
            ]
            if found:
                filling.place(self._rng.choice(found), action)
        return filling.decision()
