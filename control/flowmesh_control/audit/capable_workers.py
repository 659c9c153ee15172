"""Which connected workers could make a result again, and which of them an audit avoids."""

from collections.abc import Collection

from flowmesh_core.fleet.snapshot import Requirement
from flowmesh_core.machine.state import State
from flowmesh_core.placement.constraints import unmet_in_pool
from flowmesh_core.protocol.messages import WorkerShape


def capable_workers(
    state: State, requirement: Requirement, namespace: str, without: Collection[str]
) -> list[WorkerShape]:
    """Returns the shapes of workers that may get the work, except those that had it.

    Args:
        state: the machine's.
        requirement: of the work, with the trust that is asked for.
        namespace: whose work it is, for reserved pools.
        without: names of workers that have made it.
    """
    reserved = state.reserved_pools or {}
    admitting = [pool for pool, namespaces in reserved.items() if namespace in namespaces]
    return [
        worker.shape
        for worker in state.workers.values()
        if worker.name not in without
        and state.takes_work(worker)
        and unmet_in_pool(requirement, worker.shape, list(reserved), admitting) is None
    ]


def avoided(
    state: State, capable: Collection[WorkerShape], made_by: Collection[tuple[str, str]]
) -> tuple[str, ...]:
    """Returns the workers that an audit avoids.

    Those that have made the result, and where other pools can make it, all workers of theirs.

    Args:
        state: the machine's.
        capable: the workers that could make it again; at least one.
        made_by: pool and name of each worker that has made it.
    """
    pools = {pool for pool, _ in made_by}
    names = dict.fromkeys(name for _, name in made_by)
    if any(shape.pool not in pools for shape in capable):
        theirs = (w.name for w in state.workers.values() if w.shape.pool in pools)
        names |= dict.fromkeys(theirs)
    return tuple(names)
