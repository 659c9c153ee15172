"""Reconciles the control plane's cache policies with the cluster's FlowMeshCachePolicy objects."""

import logging

from flowmesh_api.v1.fabric import CachePolicy
from flowmesh_core.errors import FlowMeshError, SpecError, StoreUnavailableError
from flowmesh_core.sharing.scopes import plan_scopes
from flowmesh_core.spec.load import parse_object
from flowmesh_core.spec.policy import FlowMeshCachePolicy
from flowmesh_operator.kube.informer_cache import InformerCache, Object
from flowmesh_operator.kube.work_queue import WorkQueue
from flowmesh_operator.ports import CachePolicies
from flowmesh_operator.tasks import first

log = logging.getLogger("flowmesh.operator")

RETRY_S = 2.0
_ALL = "all"


class PolicyController:
    """Replaces the control plane's policies whenever those in the informer cache change."""

    def __init__(self, mirror: InformerCache, policies: CachePolicies) -> None:
        self._mirror = mirror
        self._policies = policies
        self._queue = WorkQueue()

    async def run(self) -> None:
        """Applies every change until cancelled."""
        await first(
            self._queue.feed(self._mirror.changes("policies"), as_one=_ALL),
            self._queue.serve(self._reconcile),
        )

    async def _reconcile(self, _: str) -> None:
        try:
            await self.apply()
        except StoreUnavailableError as e:
            log.warning("cache policies are not stored yet, trying again: %s", e)
            self._queue.add_after(_ALL, RETRY_S)

    async def apply(self) -> None:
        """Applies the policies that the informer cache has now.

        Raises:
            StoreError: the policies cannot be stored.
        """
        rules = [r for p in self._mirror.policies.values() if (r := _rule(p)) is not None]
        await self._policies.replace_all(rules)


def _rule(obj: Object) -> CachePolicy | None:
    """Returns a policy as the sharing rules read it; None, with a warning, if it is invalid."""
    name = obj["metadata"]["name"]
    try:
        policy = parse_object({**obj, "metadata": {"name": name}})
        if not isinstance(policy, FlowMeshCachePolicy):
            return None
        rule = policy.rule()
        plan_scopes([rule], "any", rule.labels)
    except (SpecError, FlowMeshError) as e:
        log.warning("cache policy %s is ignored: %s", name, e)
        return None
    return rule
