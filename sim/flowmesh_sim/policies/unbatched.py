"""The ablation of consolidation: the shipped scheduler, but every lane runs one action at a time.

With ``sharing: never`` nothing of one workflow is then merged with anything of another.
"""

from dataclasses import replace

from flowmesh_core.costmodel import CostModel
from flowmesh_core.fleet.snapshot import Decision, SignatureInfo, Snapshot
from flowmesh_core.machine.state import State
from flowmesh_core.placement import decide


class Unbatched:
    """As shipped, with the admitted load of every lane cut to one action."""

    def decide(self, snapshot: Snapshot, model: CostModel, state: State) -> Decision:
        """Decides on lanes of one."""
        del state
        cut = {worker.shape.device_class: 0.0 for worker in snapshot.workers}
        signatures = {s: _alone(info, cut) for s, info in snapshot.signatures.items()}
        return decide(replace(snapshot, signatures=signatures), model)


def _alone(info: SignatureInfo, cut: dict[str, float]) -> SignatureInfo:
    return replace(info, requirement=replace(info.requirement, capacity_factor=cut))
