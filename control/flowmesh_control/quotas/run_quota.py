"""Bounds how many runs and actions a namespace has under way, at admission."""

import contextlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from flowmesh_api.v1.quotas import Quota
from flowmesh_api.v1.runs import RunStatus
from flowmesh_control.errors import QuotaExceededError
from flowmesh_control.quotas.doubling import Doubling
from flowmesh_control.quotas.quotas import Quotas
from flowmesh_control.quotas.stored_bytes import StoredBytes
from flowmesh_core.machine.events import ActionKey
from flowmesh_core.machine.model import Action, Run

_REMEDY = "wait for one to end or ask an administrator"
_UNBOUNDED = 2**31


class RunQuota:
    """Compares what a namespace has under way with its quota.

    It lists the unfinished runs of each namespace itself, so that a check costs as much as the
    namespace has runs and not as much as the fabric has.
    """

    def __init__(
        self,
        quotas: Quotas,
        *,
        runs: Mapping[str, Run],
        waiting: Mapping[str, RunStatus],
        actions: Mapping[ActionKey, Action],
        stored: StoredBytes,
    ) -> None:
        """Starts without runs.

        Args:
            quotas: those in force.
            runs: the machine's, by uid.
            waiting: runs that wait for an engine, by uid.
            actions: the machine's.
            stored: what namespaces store.
        """
        self._quotas = quotas
        self._runs = runs
        self._waiting = waiting
        self._actions = actions
        self._stored = stored
        self._accepted = defaultdict[str, set[str]](set)
        self._doubling = defaultdict[str, Doubling](Doubling)
        self._entering = Counter[str]()

    def remember(self, namespace: str, uid: str) -> None:
        """Registers an unfinished run."""
        accepted = self._accepted[namespace]
        if self._doubling[namespace].is_due(len(accepted)):
            self._forget_ended(accepted)
            self._doubling[namespace].left(len(accepted))
        accepted.add(uid)

    def _forget_ended(self, accepted: set[str]) -> None:
        accepted -= {uid for uid in accepted if not self._is_unfinished(uid)}

    def unfinished(self, namespace: str) -> int:
        """Returns how many runs a namespace has that have not ended."""
        accepted = self._accepted[namespace]
        self._forget_ended(accepted)
        waiting = sum(run.namespace == namespace for run in self._waiting.values())
        return len(accepted) + waiting + self._entering[namespace]

    def in_flight(self, namespace: str) -> int:
        """Returns how many actions the runs of a namespace want."""
        runs = self._runs
        return sum(
            any(runs[uid].plan.namespace == namespace for uid in action.runs())
            for action in self._actions.values()
        )

    async def count_stored(self, namespace: str) -> None:
        """Counts anew what a namespace stores, where its quota would refuse a run for that."""
        await self._stored.recount_if_full(namespace)

    def available(self, namespace: str) -> int:
        """Returns how many further runs would be accepted now."""
        quota = self._quotas.of(namespace)
        if quota is None:
            return _UNBOUNDED
        if self._has_too_many_actions(quota, namespace) or self._stored.is_full(namespace):
            return 0
        return max(0, quota.unfinished_runs - self.unfinished(namespace))

    def check(self, namespace: str) -> None:
        """Refuses a further run where the quota is used up.

        Raises:
            QuotaExceededError: with what the namespace has, and may have.
        """
        quota = self._quotas.of(namespace)
        if quota is None:
            return
        self._stored.check(namespace)
        count, most = self.unfinished(namespace), quota.unfinished_runs
        if count >= most:
            raise self._exceeded(
                "unfinished-runs",
                f"namespace {namespace} has {count} unfinished runs, of at most {most}",
            )
        if self._has_too_many_actions(quota, namespace):
            raise self._exceeded(
                "actions-in-flight",
                f"namespace {namespace} has {self.in_flight(namespace)} actions in flight, of at "
                f"most {quota.actions_in_flight}",
            )

    @contextlib.contextmanager
    def entering(self, namespace: str, uid: str, steps: int) -> Iterator[None]:
        """Counts a run while it is written, and from then on if it is accepted.

        Args:
            namespace: its namespace.
            uid: its uid.
            steps: its steps after expansion.

        Raises:
            QuotaExceededError: there is no room for it, or it is too large.
        """
        self.check(namespace)
        quota = self._quotas.of(namespace)
        if quota is not None and steps > quota.steps_per_run:
            raise self._exceeded(
                "steps-per-run",
                f"the workflow has {steps} steps, of at most {quota.steps_per_run} in namespace "
                f"{namespace}",
                remedy="split it or ask an administrator",
                retryable=False,
            )
        self._entering[namespace] += 1
        try:
            yield
            self.remember(namespace, uid)
        finally:
            self._entering[namespace] -= 1

    def _has_too_many_actions(self, quota: Quota, namespace: str) -> bool:
        # Most namespaces are far below: where all together are, nothing needs to be counted.
        most = quota.actions_in_flight
        return len(self._actions) >= most and self.in_flight(namespace) >= most

    def _is_unfinished(self, uid: str) -> bool:
        run = self._runs.get(uid)
        return run is not None and not run.finishing

    def _exceeded(
        self, limit: str, message: str, *, remedy: str = _REMEDY, retryable: bool = True
    ) -> QuotaExceededError:
        self._quotas.refusals[limit] += 1
        return QuotaExceededError(message, remedy=remedy, can_pass=retryable)
