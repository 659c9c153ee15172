"""Whose code each worker may hold, while replicas are planned; called by ``replica_placement``.

A worker that cannot switch users runs the code of one namespace, for its life (ADR 42).
"""

from collections.abc import Iterable

from flowmesh_core.fleet.snapshot import WorkerView
from flowmesh_core.serving.plan.component_demand import ComponentDemand

OTHER_TENANT = (
    "every worker that could hold it runs the code of another namespace, and cannot switch users;"
    " set spec.sandbox.hostUsers of the pool to false, or raise its maxReplicas"
)


class CodeTenants:
    """The namespaces of single-tenant workers; empty for one that has run no code yet."""

    def __init__(self, workers: Iterable[WorkerView]) -> None:
        """Begins with what the workers have run; other workers are free for all."""
        self._tenants = {w.name: w.code_tenant for w in workers if w.shape.single_tenant}

    def admits(self, demand: ComponentDemand, worker: str) -> bool:
        """Returns whether a worker may hold a component."""
        if not demand.info.requirement.user_code:
            return True
        return self._tenants.get(worker, "") in ("", demand.namespace)

    def bind(self, demand: ComponentDemand, worker: str) -> None:
        """Notes that a worker gets a component."""
        if demand.info.requirement.user_code and worker in self._tenants:
            self._tenants[worker] = demand.namespace
