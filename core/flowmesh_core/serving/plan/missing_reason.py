"""Says why no worker can hold replicas that are missing; shown by ``fmesh services why``."""

from collections.abc import Iterable

from flowmesh_api.v1.enums import RejectionCause
from flowmesh_core.fleet.snapshot import WorkerView
from flowmesh_core.placement.constraints import unmet, unmet_remedy
from flowmesh_core.protocol.messages import WorkerShape
from flowmesh_core.serving.plan.code_tenants import OTHER_TENANT, CodeTenants
from flowmesh_core.serving.plan.component_demand import ComponentDemand, ReplicaGroup

NO_HUB = "no connected worker can hold replicas: none has a hub"


def missing_reason(group: ReplicaGroup, workers: Iterable[WorkerView], tenants: CodeTenants) -> str:
    """Returns why no worker has room for a replica of each component.

    Args:
        group: the components.
        workers: those that may have replicas.
        tenants: whose code each of them may hold.
    """
    able = list(workers)
    shapes = [worker.shape for worker in able]
    if not shapes:
        return "no worker is connected"
    for demand in group.demands:
        if text := _unmet(demand, shapes):
            return text if len(group.demands) == 1 else f"{demand.component}: {text}"
    if not any(worker.serves for worker in able):
        return NO_HUB
    for demand in group.demands:
        if not any(tenants.admits(demand, worker.name) for worker in able if worker.serves):
            return OTHER_TENANT
        if all(shape.device_class in demand.too_slow for shape in shapes):
            return next(iter(demand.too_slow.values()))
    together = ""
    if len(group.demands) > 1:
        names = ", ".join(demand.component for demand in group.demands)
        together = f" ({names} are loaded together, by affinity {group.demands[0].affinity!r})"
    return (
        f"no worker has {group.memory_mib()} MiB free for it{together}; attempts and other replicas"
        " have the rest"
    )


def _unmet(demand: ComponentDemand, shapes: list[WorkerShape]) -> str:
    requirement = demand.info.requirement
    causes = {unmet(requirement, shape) for shape in shapes}
    if demand.trusted and None not in causes and RejectionCause.TRUST in causes:
        return (
            f"its code is trusted, so it runs outside the sandbox, and needs a pool of trust"
            f" {requirement.min_trust}: raise spec.trust of a pool that deserves it, or remove"
            " `trusted`"
        )
    return unmet_remedy(requirement, shapes)
