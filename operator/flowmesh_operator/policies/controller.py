"""Reconciles the control plane's cache policies with the cluster's FlowMeshCachePolicy objects."""

import logging

from flowmesh_api.v1.fabric import CachePolicy
from flowmesh_api.v1.problems import Problem
from flowmesh_core.errors import FlowMeshError, SpecError, StoreUnavailableError
from flowmesh_core.sharing.scopes import plan_scopes
from flowmesh_core.spec.load import parse_object
from flowmesh_core.spec.policy import FlowMeshCachePolicy
from flowmesh_operator.kube.client import ApiError, KubeClient
from flowmesh_operator.kube.informer_cache import InformerCache, Object
from flowmesh_operator.kube.object_status import ObjectStatusWriter, context_of
from flowmesh_operator.kube.work_queue import WorkQueue
from flowmesh_operator.policies.status import of_invalid, of_policy
from flowmesh_operator.ports import CachePolicies, Epoch
from flowmesh_operator.tasks import first
from flowmesh_operator.workflows.submission import words

log = logging.getLogger("flowmesh.operator")

RETRY_S = 2.0
_ALL = "all"


class PolicyController:
    """Replaces the control plane's policies whenever those in the informer cache change.

    It writes the statuses of their objects, also when a namespace changes, which may be covered
    then.
    """

    def __init__(
        self, api: KubeClient, mirror: InformerCache, policies: CachePolicies, epoch: Epoch
    ) -> None:
        """Starts with an empty queue.

        Args:
            api: the leader's client.
            mirror: the informer cache.
            policies: the control plane's.
            epoch: the leader's epoch.
        """
        self._mirror = mirror
        self._policies = policies
        self._epoch = epoch
        self._writer = ObjectStatusWriter(api, mirror, "policies")
        self._queue = WorkQueue()

    async def run(self) -> None:
        """Applies every change until cancelled.

        Raises:
            LeadershipLostError: the fence stopped a write.
        """
        await first(
            self._queue.feed(self._mirror.changes("policies"), as_one=_ALL),
            self._queue.feed(self._mirror.changes("namespaces"), as_one=_ALL),
            self._queue.serve(self._reconcile),
        )

    async def _reconcile(self, _: str) -> None:
        try:
            await self.apply()
            await self.show()
        except (StoreUnavailableError, ApiError) as e:
            log.warning("cache policies are reconciled again: %s", e)
            self._queue.add_after(_ALL, RETRY_S)

    async def apply(self) -> None:
        """Applies the policies that the informer cache has now.

        Raises:
            StoreError: the policies cannot be stored.
        """
        rules, problems = self._read()
        for name, problem in problems.items():
            log.warning("cache policy %s is ignored: %s", name, problem)
        await self._policies.replace_all(rules.values())

    async def show(self) -> None:
        """Writes the statuses that have changed.

        Raises:
            ApiError: the API server refused one.
        """
        rules, problems = self._read()
        for obj in list(self._mirror.policies.values()):
            name = obj["metadata"]["name"]
            context = context_of(obj, self._epoch.number, self._epoch.now_s())
            status = (
                of_invalid(problems[name], context)
                if name in problems
                else of_policy(rules[name], list(rules.values()), self._mirror.namespaces, context)
            )
            await self._writer.write(obj, status)

    def _read(self) -> tuple[dict[str, CachePolicy], dict[str, str]]:
        """Returns the valid policies, and what is wrong with the others, by name."""
        rules: dict[str, CachePolicy] = {}
        problems: dict[str, str] = {}
        for obj in self._mirror.policies.values():
            name = obj["metadata"]["name"]
            try:
                rules[name] = _rule(obj)
            except FlowMeshError as e:
                problems[name] = words(e) if isinstance(e, SpecError) else str(e)
        return rules, problems


def _rule(obj: Object) -> CachePolicy:
    """Returns a policy as the sharing rules read it.

    Raises:
        SpecError: it is invalid.
    """
    policy = parse_object({**obj, "metadata": {"name": obj["metadata"]["name"]}})
    if not isinstance(policy, FlowMeshCachePolicy):
        raise SpecError([Problem("kind", "it is not a FlowMeshCachePolicy")])
    rule = policy.rule()
    plan_scopes([rule], "any", rule.labels)
    return rule
