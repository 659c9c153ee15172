"""The prewarm plan: divides the engines of a preferred pool among its workers."""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from flowmesh_core.fleet.demand import SignatureDemand
from flowmesh_core.fleet.snapshot import WorkerView
from flowmesh_core.units import Digest


def prewarm_plan(
    workers: Sequence[WorkerView],
    warm: Sequence[SignatureDemand],
    preferred: Mapping[Digest, str],
    overflow: Mapping[Digest, Collection[str]] = MappingProxyType({}),
) -> dict[str, tuple[Digest, ...]]:
    """Returns worker → signatures that it should prewarm, the most frequent ones first.

    A signature goes to a worker of its preferred pool: one that has the instance, else one where
    the instance is asleep, else the one with the most free memory. A signature is left out if it
    fits on no worker, or if a service has its instance loaded in that pool. A worker that takes no
    new work gets no signatures.

    Idle workers of the pool and of its overflow pools load additional instances, at no extra cost:
    one for each action that shares an instance, and one for each step of a running workflow that
    will need one.

    Args:
        workers: the connected workers.
        warm: signatures in demand.
        preferred: signature → pool (``backlog.CapacitySignal.preferred``).
        overflow: signature → further pools (``backlog.CapacitySignal.overflow``).
    """
    able = [w for w in workers if not w.draining]
    found: dict[str, list[Digest]] = {w.name: [] for w in able}
    free_mib = {
        w.name: w.shape.device_memory_mib * w.shape.devices - w.replica_memory_mib for w in able
    }
    for one in sorted(warm, key=lambda one: (one.gap_s, one.info.signature)):
        signature, mib = one.info.signature, one.info.requirement.memory_mib
        pool = [w for w in able if w.shape.pool == preferred.get(signature)]
        instances = [w.instances[signature] for w in pool if signature in w.instances]
        fitting = [
            (signature in w.instances, signature in w.asleep, free_mib[w.name], w.name)
            for w in pool
            if free_mib[w.name] >= mib
        ]
        if fitting and not any(instance.pinned for instance in instances):
            *_, name = max(fitting)
            free_mib[name] -= mib
            found[name].append(signature)
    _add_instances(found, free_mib, able, warm, preferred, overflow)
    return {name: tuple(signatures) for name, signatures in found.items() if signatures}


def _add_instances(
    found: dict[str, list[Digest]],
    free_mib: Mapping[str, int],
    workers: Sequence[WorkerView],
    warm: Sequence[SignatureDemand],
    preferred: Mapping[Digest, str],
    overflow: Mapping[Digest, Collection[str]],
) -> None:
    """Adds more instances to the plans of idle workers.

    Workers of preferred pools come first. Within them and the others, workers and signatures are
    taken in the order of their names, not by how many instances are missing: a plan that changed
    with every action would cancel the fetches that it has begun.
    """
    mib = {one.info.signature: one.info.requirement.memory_mib for one in warm}
    foreseen = {one.info.signature: one.foreseen for one in warm if one.info.signature in preferred}
    pools = {s: {pool, *overflow.get(s, ())} for s, pool in preferred.items()}
    first = set(preferred.values())
    lacking = _instances_lacking(workers, foreseen)
    if not lacking:
        return
    for worker in sorted(workers, key=lambda w: w.shape.pool not in first):
        if worker.replicas or any(i.assigned for i in worker.instances.values()):
            continue
        here = {*found[worker.name], *worker.instances}
        free = free_mib[worker.name]
        free -= sum(mib.get(s, 0) for s in here.difference(found[worker.name]))
        for signature in sorted(lacking):
            is_allowed = worker.shape.pool in pools[signature]
            if is_allowed and signature not in here and mib[signature] <= free:
                found[worker.name].append(signature)
                free -= mib[signature]
                lacking[signature] -= 1
        lacking = +lacking


def _instances_lacking(
    workers: Sequence[WorkerView], foreseen: Mapping[Digest, int]
) -> Counter[Digest]:
    """Returns signature → how many actions and open steps have no instance of their own."""
    found = Counter(foreseen)
    for worker in workers:
        for signature, instance in worker.instances.items():
            if signature in foreseen:
                found[signature] += instance.assigned - 1
    return +found
