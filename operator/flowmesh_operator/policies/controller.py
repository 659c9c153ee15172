"""Brings the cluster's FlowMeshCachePolicies to the control plane."""

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
    """Makes the control plane's policies those of the mirror."""

    def __init__(self, mirror: InformerCache, policies: CachePolicies) -> None:
        """Brings the mirror's policies to ``policies``."""
        self._mirror = mirror
        self._policies = policies
        self._queue = WorkQueue()

    async def run(self) -> None:
        """Brings every change, until cancelled."""
        await first(
            self._queue.feed(self._mirror.changes("policies"), as_one=_ALL),
            self._queue.serve(self._look),
        )

    async def _look(self, _: str) -> None:
        try:
            await self.bring()
        except StoreUnavailableError as e:
            log.warning("the policies wait for the store: %s", e)
            self._queue.add_after(_ALL, RETRY_S)

    async def bring(self) -> None:
        """Brings the policies as the mirror has them now.

        Raises:
            StoreError: they cannot be stored.
        """
        rules = [r for p in self._mirror.policies.values() if (r := _rule(p)) is not None]
        await self._policies.replace_all(rules)


def _rule(obj: Object) -> CachePolicy | None:
    """A policy as the sharing rules read it; None where it says nothing that can hold."""
    name = obj["metadata"]["name"]
    try:
        policy = parse_object({**obj, "metadata": {"name": name}})
        if not isinstance(policy, FlowMeshCachePolicy):
            return None
        rule = policy.rule()
        plan_scopes([rule], "any", rule.labels)
    except (SpecError, FlowMeshError) as e:
        log.warning("cache policy %s is left out: %s", name, e)
        return None
    return rule
