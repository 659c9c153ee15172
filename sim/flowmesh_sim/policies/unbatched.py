"""The ablation of consolidation: the shipped scheduler with one action per engine instance.

With ``sharing: never`` no work of one workflow is then merged with another's.
"""

from dataclasses import replace

from flowmesh_core.costmodel import CostModel
from flowmesh_core.fleet.snapshot import Decision, SignatureInfo, Snapshot
from flowmesh_core.machine.state import State
from flowmesh_core.placement import decide


class Unbatched:
    """The shipped scheduler with the capacity of every engine instance reduced to one action."""

    def decide(self, snapshot: Snapshot, model: CostModel, state: State) -> Decision:
        """Decides with a capacity of one action for each engine instance."""
        del state
        cut = {worker.shape.device_class: 0.0 for worker in snapshot.workers}
        signatures = {s: _alone(info, cut) for s, info in snapshot.signatures.items()}
        return decide(replace(snapshot, signatures=signatures), model)


def _alone(info: SignatureInfo, cut: dict[str, float]) -> SignatureInfo:
    return replace(info, requirement=replace(info.requirement, capacity_factor=cut))
