"""The prewarm plan: a preferred pool's engines, divided among its workers."""

from collections.abc import Mapping, Sequence

from flowmesh_core.fleet.demand import SignatureDemand
from flowmesh_core.fleet.snapshot import WorkerView
from flowmesh_core.units import Digest


def prewarm_plan(
    workers: Sequence[WorkerView], warm: Sequence[SignatureDemand], homes: Mapping[Digest, str]
) -> dict[str, tuple[Digest, ...]]:
    """Returns worker → signatures that it should prewarm, the most frequent ones first.

    A signature goes to the worker of its preferred pool that has its instance, or where that is
    asleep, or to the one with the most free memory; one that fits no worker is left out. A worker
    that takes no work gets none.

    Args:
        workers: the connected ones.
        warm: signatures in demand.
        homes: signature → pool (``backlog.CapacitySignal.homes``).
    """
    found: dict[str, list[Digest]] = {w.name: [] for w in workers if not w.draining}
    free_mib = {w.name: w.shape.device_memory_mib * w.shape.devices for w in workers}
    for one in sorted(warm, key=lambda one: (one.gap_s, one.info.signature)):
        signature, mib = one.info.signature, one.info.requirement.memory_mib
        able = [
            (signature in w.instances, signature in w.asleep, free_mib[w.name], w.name)
            for w in workers
            if w.name in found and w.shape.pool == homes.get(signature) and free_mib[w.name] >= mib
        ]
        if able:
            *_, name = max(able)
            free_mib[name] -= mib
            found[name].append(signature)
    return {name: tuple(signatures) for name, signatures in found.items() if signatures}
