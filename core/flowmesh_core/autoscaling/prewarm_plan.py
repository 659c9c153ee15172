"""The prewarm plan: a preferred pool's engines, divided among its workers."""

from collections import Counter
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

    Workers of the pool that have nothing to do load further instances, which cost nothing more:
    one for each action that shares an instance, and for each step of a running workflow that will
    need one.

    Args:
        workers: the connected ones.
        warm: signatures in demand.
        homes: signature → pool (``backlog.CapacitySignal.homes``).
    """
    able = [w for w in workers if not w.draining]
    found: dict[str, list[Digest]] = {w.name: [] for w in able}
    free_mib = {w.name: w.shape.device_memory_mib * w.shape.devices for w in able}
    for one in sorted(warm, key=lambda one: (one.gap_s, one.info.signature)):
        signature, mib = one.info.signature, one.info.requirement.memory_mib
        fitting = [
            (signature in w.instances, signature in w.asleep, free_mib[w.name], w.name)
            for w in able
            if w.shape.pool == homes.get(signature) and free_mib[w.name] >= mib
        ]
        if fitting:
            *_, name = max(fitting)
            free_mib[name] -= mib
            found[name].append(signature)
    _add_instances(found, free_mib, able, warm, homes)
    return {name: tuple(signatures) for name, signatures in found.items() if signatures}


def _add_instances(
    found: dict[str, list[Digest]],
    free_mib: Mapping[str, int],
    workers: Sequence[WorkerView],
    warm: Sequence[SignatureDemand],
    homes: Mapping[Digest, str],
) -> None:
    """Lists further instances on workers that have nothing to do.

    Workers and engines are gone through in the order of their names, not by what is lacking most: a
    list that changed with every action would end the fetches that it has begun.
    """
    mib = {one.info.signature: one.info.requirement.memory_mib for one in warm}
    foreseen = {one.info.signature: one.foreseen for one in warm if one.info.signature in homes}
    lacking = _instances_lacking(workers, foreseen)
    if not lacking:
        return
    for worker in workers:
        if worker.replicas or any(i.assigned for i in worker.instances.values()):
            continue
        here = {*found[worker.name], *worker.instances}
        free = free_mib[worker.name]
        free -= sum(mib.get(s, 0) for s in here.difference(found[worker.name]))
        for signature in sorted(lacking):
            is_home = homes[signature] == worker.shape.pool
            if is_home and signature not in here and mib[signature] <= free:
                found[worker.name].append(signature)
                free -= mib[signature]
                lacking[signature] -= 1
        lacking = +lacking


def _instances_lacking(
    workers: Sequence[WorkerView], foreseen: Mapping[Digest, int]
) -> Counter[Digest]:
    """Returns by signature how many actions and foreseen steps have no instance to themselves."""
    found = Counter(foreseen)
    for worker in workers:
        for signature, instance in worker.instances.items():
            if signature in foreseen:
                found[signature] += instance.assigned - 1
    return +found
