"""From the machine's state to the fleet as the planner of replicas sees it.

Used by the control plane and by the simulator.
"""

from collections.abc import Iterable, Sequence

from flowmesh_core.autoscaling.pool_model import PoolView
from flowmesh_core.machine import serving
from flowmesh_core.machine.connected_worker import Worker
from flowmesh_core.machine.fleet_snapshot import worker_views
from flowmesh_core.machine.state import State
from flowmesh_core.serving.plan.component_demand import FleetView


def fleet_view(state: State, pools: Sequence[PoolView], now_s: float) -> FleetView:
    """Returns the fleet; ``pools`` are those that can grow."""
    workers = state.workers
    return FleetView(
        workers=worker_views(state, now_s),
        leaving={name for name, worker in workers.items() if worker.draining},
        held={name: replica_ids_of(worker) for name, worker in workers.items()},
        reported={name for name, worker in workers.items() if worker.replicas is None},
        ready=_in_state("ready", workers.values()),
        failed=_in_state("failed", workers.values()),
        pinned={name: serving.pinned_mib(worker).keys() for name, worker in workers.items()},
        pools=pools,
        reserved=frozenset(state.reserved_pools or ()),
    )


def replica_ids_of(worker: Worker) -> list[str]:
    """Returns the ids of a worker's replicas, without those that it refuses."""
    states = worker.replica_states
    ids = states if worker.replicas is None else [r.replica_id for r in worker.replicas]
    return [
        r for r in ids if r not in states or states[r].state != "failed" or states[r].memory_mib
    ]


def _in_state(state: str, workers: Iterable[Worker]) -> set[str]:
    """Returns the replicas in a state; a worker is believed about those that it was given."""
    return {
        r.replica_id
        for worker in workers
        for r in worker.replicas or ()
        if (known := worker.replica_states.get(r.replica_id)) is not None and known.state == state
    }
