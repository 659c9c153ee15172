"""Workers that run the user code of one tenant only, because they cannot switch uids.

Such a worker belongs to the first tenant whose code it is given, for its life; placement treats
that as a hard constraint. An idle one leaves where another tenant has waited for it, and its pod
starts anew for the next tenant (ADR 42).
"""

from flowmesh_core.machine import ready_actions
from flowmesh_core.machine.commands import DrainWorker
from flowmesh_core.machine.connected_worker import Worker
from flowmesh_core.machine.model import Action
from flowmesh_core.machine.state import State
from flowmesh_core.placement.constraints import unmet

PATIENCE_S = 5.0
"""How long an action waits before an idle worker of another tenant leaves for it."""
DRAIN_EVERY_S = 30.0
"""Seconds between two such workers: about what a container takes to start again."""


def joined(state: State, worker: Worker, code_tenant: str) -> None:
    """Notes the tenant of a worker that connects, and separates the ready actions by tenant."""
    worker.code_tenant = code_tenant or worker.code_tenant
    if worker.shape.single_tenant and not state.single_tenant:
        state.single_tenant = True
        for action in state.ready.values():
            ready_actions.mark_changed(state, action)


def bind(worker: Worker, tenant: str) -> bool:
    """Gives a single-tenant worker to a tenant; returns whether its user code may run there.

    Called for each attempt and for each replica that it is sent.
    """
    if not (tenant and worker.shape.single_tenant):
        return True
    worker.code_tenant = worker.code_tenant or tenant
    return worker.code_tenant == tenant


def drain_idle(state: State, action: Action, now_s: float) -> None:
    """Lets an idle worker of another tenant leave for an action that has waited for it."""
    late = now_s - action.ready_s >= PATIENCE_S
    if not late or now_s - state.tenant_drained_s < DRAIN_EVERY_S:
        return
    tenant, requirement = ready_actions.code_tenant(state, action), action.info.requirement
    for _, worker in sorted(state.workers.items()):
        idle = state.takes_work(worker) and not worker.attempts and not worker.replicas
        other = worker.shape.single_tenant and worker.code_tenant not in ("", tenant)
        if idle and other and unmet(requirement, worker.shape) is None:
            state.tenant_drained_s = now_s
            worker.draining = True
            state.emit(DrainWorker(worker.name))
            return
