"""Reconciles the control plane's quotas with the cluster's FlowMeshQuota objects."""

import logging

from flowmesh_api.v1.quotas import Quota
from flowmesh_core.errors import SpecError
from flowmesh_core.spec.load import parse_object
from flowmesh_core.spec.quota import FlowMeshQuota
from flowmesh_operator.kube.informer_cache import InformerCache, Object
from flowmesh_operator.kube.work_queue import WorkQueue
from flowmesh_operator.ports import NamespaceQuotas
from flowmesh_operator.tasks import first

log = logging.getLogger("flowmesh.operator")

_ALL = "all"


class QuotaController:
    """Replaces the control plane's quotas whenever those in the informer cache change.

    Also when a namespace changes, since its labels may select another quota.
    """

    def __init__(self, mirror: InformerCache, quotas: NamespaceQuotas) -> None:
        self._mirror = mirror
        self._quotas = quotas
        self._queue = WorkQueue()

    async def run(self) -> None:
        """Applies every change until cancelled."""
        await first(
            self._queue.feed(self._mirror.changes("quotas"), as_one=_ALL),
            self._queue.feed(self._mirror.changes("namespaces"), as_one=_ALL),
            self._queue.serve(lambda _: self.apply()),
        )

    async def apply(self) -> None:
        """Applies the quotas that the informer cache has now."""
        found = [q for obj in self._mirror.quotas.values() if (q := _quota(obj)) is not None]
        await self._quotas.replace_all(found, self._mirror.namespaces)


def _quota(obj: Object) -> Quota | None:
    """Returns a quota as the control plane reads it; None, with a warning, if it is invalid."""
    name = obj["metadata"]["name"]
    try:
        found = parse_object({**obj, "metadata": {"name": name}})
    except SpecError as e:
        log.warning("quota %s is ignored: %s", name, e)
        return None
    return found.quota() if isinstance(found, FlowMeshQuota) else None
