"""Adds to reasons for waiting what pools could do, also those without a worker.

The scheduler sees connected workers only. An action that none of them can run waits either for a
pool that can start a worker, or until a pool is changed; this module says which, after each cycle.
"""

from collections.abc import Sequence
from dataclasses import replace

from msgspec import structs

from flowmesh_api.v1.enums import RejectionCause
from flowmesh_core.autoscaling.pool_model import PoolView
from flowmesh_core.fleet.snapshot import Decision, Rejection, Snapshot
from flowmesh_core.fleet.worker_bounds import WorkerBounds
from flowmesh_core.placement.constraints import CHECKS, remedy, unmet_in_pool

_OF_THE_FLEET = frozenset({*CHECKS, RejectionCause.NO_WORKERS})


def explain_with_pools(
    pools: Sequence[PoolView], decision: Decision, snapshot: Snapshot
) -> Decision:
    """Returns the decision with rejections that say what the pools could do.

    Args:
        pools: every declared pool; without any the decision is returned unchanged.
        decision: of a scheduling cycle.
        snapshot: of the same cycle.
    """
    if not pools or not any(r.cause in _OF_THE_FLEET for r in decision.rejections):
        return decision
    explained = (_explained(pools, rejection, snapshot) for rejection in decision.rejections)
    return replace(decision, rejections=tuple(explained))


def _explained(pools: Sequence[PoolView], rejection: Rejection, snapshot: Snapshot) -> Rejection:
    info = snapshot.signatures.get(rejection.signature)
    if rejection.cause not in _OF_THE_FLEET or info is None:
        return rejection
    requirement = info.with_trust(rejection.min_trust).requirement
    admitting, reserved = rejection.pools, snapshot.reserved_pools
    causes = {
        pool.name: unmet_in_pool(requirement, pool.shape, reserved, admitting) for pool in pools
    }
    able = [pool for pool in pools if causes[pool.name] is None]
    coming = [pool.name for pool in able if pool.most > 0]
    growing = coming or [pool.name for pool in able if pool.maximum > 0]
    bounds, tenants = WorkerBounds(snapshot.worker_uses), rejection.bounded_tenants or ()
    if growing and bounds.reached(tenants):  # so that no pool grows for it
        quota = bounds.text(tenants)
        return structs.replace(rejection, cause=RejectionCause.WORKER_QUOTA, detail=quota)
    if growing:
        text = f"a worker of pool {' or '.join(growing)} can run it once it has started"
        if not coming:
            text += (
                "; none has started for some time: see why with kubectl describe flowmeshworkerpool"
            )
        return structs.replace(rejection, cause=RejectionCause.NO_WORKERS, detail=text)
    if able:
        text = f"pool {able[0].name} could run it, but may have no worker; raise its maxReplicas"
        return structs.replace(rejection, cause=RejectionCause.NO_WORKERS, detail=text)
    worst = max((c for c in causes.values() if c is not None), key=CHECKS.index)
    text = remedy(requirement, worst, [pool.shape for pool in pools])
    return structs.replace(rejection, cause=worst, detail=text)
