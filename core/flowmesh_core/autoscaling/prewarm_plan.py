"""Which worker holds open which engine: homes of signatures, divided among a pool's workers."""

from collections.abc import Mapping, Sequence

from flowmesh_core.fleet.demand import SignatureDemand
from flowmesh_core.fleet.snapshot import WorkerView
from flowmesh_core.units import Digest


def openings_of(
    workers: Sequence[WorkerView], warm: Sequence[SignatureDemand], homes: Mapping[Digest, str]
) -> dict[str, tuple[Digest, ...]]:
    """Worker → signatures that it should hold open, those first that are asked for most often.

    A signature goes to the worker of its home that has its lane, or to the one that has most room
    left; what no worker has memory for is left out. Who takes no work is given none.

    Args:
        workers: the connected ones.
        warm: what is in demand.
        homes: signature → pool (``backlog.CapacitySignal.homes``).
    """
    found: dict[str, list[Digest]] = {w.name: [] for w in workers if not w.draining}
    left = {w.name: w.shape.device_memory_mib * w.shape.devices for w in workers}
    for one in sorted(warm, key=lambda one: (one.gap_s, one.info.signature)):
        signature, mib = one.info.signature, one.info.requirement.memory_mib
        able = [
            (signature in w.lanes, left[w.name], w.name)
            for w in workers
            if w.name in found and w.shape.pool == homes.get(signature) and left[w.name] >= mib
        ]
        if able:
            _, _, name = max(able)
            left[name] -= mib
            found[name].append(signature)
    return {name: tuple(signatures) for name, signatures in found.items() if signatures}
