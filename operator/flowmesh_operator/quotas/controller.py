"""Reconciles the control plane's quotas with the cluster's FlowMeshQuota objects."""

import logging

from flowmesh_api.v1.problems import Problem
from flowmesh_api.v1.quotas import Quota
from flowmesh_core.errors import SpecError
from flowmesh_core.spec.load import parse_object
from flowmesh_core.spec.quota import FlowMeshQuota
from flowmesh_operator.kube.client import ApiError, KubeClient
from flowmesh_operator.kube.informer_cache import InformerCache, Object
from flowmesh_operator.kube.object_status import ObjectStatusWriter, context_of
from flowmesh_operator.kube.work_queue import WorkQueue
from flowmesh_operator.ports import Epoch, NamespaceQuotas
from flowmesh_operator.quotas.status import of_invalid, of_quota
from flowmesh_operator.tasks import first
from flowmesh_operator.workflows.submission import words

log = logging.getLogger("flowmesh.operator")

RETRY_S = 2.0
_ALL = "all"


class QuotaController:
    """Replaces the control plane's quotas whenever those in the informer cache change.

    Also when a namespace changes, since its labels may select another quota. It writes the statuses
    of their objects.
    """

    def __init__(
        self, api: KubeClient, mirror: InformerCache, quotas: NamespaceQuotas, epoch: Epoch
    ) -> None:
        """Starts with an empty queue.

        Args:
            api: the leader's client.
            mirror: the informer cache.
            quotas: the control plane's.
            epoch: the leader's epoch.
        """
        self._mirror = mirror
        self._quotas = quotas
        self._epoch = epoch
        self._writer = ObjectStatusWriter(api, mirror, "quotas")
        self._queue = WorkQueue()

    async def run(self) -> None:
        """Applies every change until cancelled.

        Raises:
            LeadershipLostError: the fence stopped a write.
        """
        await first(
            self._queue.feed(self._mirror.changes("quotas"), as_one=_ALL),
            self._queue.feed(self._mirror.changes("namespaces"), as_one=_ALL),
            self._queue.serve(self._reconcile),
        )

    async def _reconcile(self, _: str) -> None:
        await self.apply()
        try:
            await self.show()
        except ApiError as e:
            log.warning("the statuses of quotas are written again: %s", e)
            self._queue.add_after(_ALL, RETRY_S)

    async def apply(self) -> None:
        """Applies the quotas that the informer cache has now."""
        quotas, problems = self._read()
        for name, problem in problems.items():
            log.warning("quota %s is ignored: %s", name, problem)
        await self._quotas.replace_all(list(quotas.values()), self._mirror.namespaces)

    async def show(self) -> None:
        """Writes the statuses that have changed.

        Raises:
            ApiError: the API server refused one.
        """
        quotas, problems = self._read()
        for obj in list(self._mirror.quotas.values()):
            name = obj["metadata"]["name"]
            context = context_of(obj, self._epoch.number, self._epoch.now_s())
            status = (
                of_invalid(problems[name], context)
                if name in problems
                else of_quota(quotas[name], list(quotas.values()), self._mirror.namespaces, context)
            )
            await self._writer.write(obj, status)

    def _read(self) -> tuple[dict[str, Quota], dict[str, str]]:
        """Returns the valid quotas, and what is wrong with the others, by name."""
        quotas: dict[str, Quota] = {}
        problems: dict[str, str] = {}
        for obj in self._mirror.quotas.values():
            name = obj["metadata"]["name"]
            try:
                quotas[name] = _quota(obj)
            except SpecError as e:
                problems[name] = words(e)
        return quotas, problems


def _quota(obj: Object) -> Quota:
    """Returns a quota as the control plane reads it.

    Raises:
        SpecError: it is invalid.
    """
    found = parse_object({**obj, "metadata": {"name": obj["metadata"]["name"]}})
    if not isinstance(found, FlowMeshQuota):
        raise SpecError([Problem("kind", "it is not a FlowMeshQuota")])
    return found.quota()
