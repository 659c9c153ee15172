"""Cache policies as records: which namespaces share scopes; set by administrators only."""

from collections.abc import Iterable

import msgspec

from flowmesh_api.v1.fabric import CachePolicy
from flowmesh_control.records.keys import POLICIES, policy_key
from flowmesh_control.records.run_records import decode_record
from flowmesh_core.sharing.namespace_selection import ANY_NAMESPACE
from flowmesh_core.sharing.scopes import ScopePlan, plan_scopes
from flowmesh_store.ports import RecordStore

_SOME_NAMESPACE = "any"
_REMEDY = "restore the object from a copy of the store; or delete it, and write the policy again"
_decoder = msgspec.json.Decoder(CachePolicy | None)


class CachePolicyStore:
    """The cluster's cache policies, in memory and under ``policies/``."""

    def __init__(self, records: RecordStore) -> None:
        """Starts empty; :meth:`load` reads the stored policies."""
        self._records = records
        self._policies: dict[str, CachePolicy] = {}

    async def load(self) -> None:
        """Reads every policy; a removed one is a record of ``null``.

        A record without a valid seal is not a policy: its namespaces share nothing.

        Raises:
            DamagedRecordError: one cannot be read. There is no fallback, since it decides who may
                read what.
        """
        async for key in self._records.keys(POLICIES):
            record = await self._records.read(key)
            policy = (
                None
                if record is None or record.is_foreign
                else decode_record(_decoder, key, record, remedy=_REMEDY)
            )
            if policy is not None:
                self._policies[policy.name] = policy

    def check(self, wanted: Iterable[CachePolicy], *, only: bool) -> None:
        """Checks policies before any of them is written, so that either all or none are set.

        The changed policies must agree with the others for every namespace that they name, because
        a contradiction would refuse all further workflows of that namespace. Namespaces that are
        selected by labels are not checked: they are known only when a workflow is submitted.

        Args:
            wanted: the policies to set.
            only: whether all others are removed.

        Raises:
            SpecError: one is malformed, or contradicts another.
        """
        given = {p.name: p for p in wanted}
        after = given if only else {**self._policies, **given}
        changed = [p for p in given.values() if self._policies.get(p.name) != p]
        named = {n for p in changed for n in p.namespaces}
        if ANY_NAMESPACE in named:
            named |= {n for p in after.values() for n in p.namespaces}
        for policy in changed:
            plan_scopes([policy], _SOME_NAMESPACE, policy.labels)
        for namespace in sorted(named):
            plan_scopes(after.values(), namespace)

    async def put(self, policy: CachePolicy) -> None:
        """Adds or replaces a policy; existing runs keep the scopes that they were pinned to.

        Raises:
            SpecError: it is malformed.
            ConditionFailedError: it was changed concurrently.
        """
        for namespace in (*policy.namespaces, _SOME_NAMESPACE):
            plan_scopes([policy], namespace, policy.labels)
        await self._write(policy.name, policy)
        self._policies[policy.name] = policy

    async def remove(self, name: str) -> bool:
        """Removes a policy; returns whether it existed."""
        if name not in self._policies:
            return False
        await self._write(name, None)
        del self._policies[name]
        return True

    async def replace_all(self, policies: Iterable[CachePolicy]) -> None:
        """Makes these the only policies."""
        wanted = {p.name: p for p in policies}
        for name in [n for n in self._policies if n not in wanted]:
            await self.remove(name)
        for policy in wanted.values():
            if self._policies.get(policy.name) != policy:
                await self.put(policy)

    def all(self) -> list[CachePolicy]:
        """Returns every policy in order of name."""
        return [self._policies[n] for n in sorted(self._policies)]

    def scopes(self, namespace: str, labels: dict[str, str] | None = None) -> ScopePlan:
        """Returns the scopes where a namespace publishes and looks up.

        Raises:
            SpecError: two policies contradict each other.
        """
        return plan_scopes(self.all(), namespace, labels)

    async def _write(self, name: str, policy: CachePolicy | None) -> None:
        key = policy_key(name)
        record = await self._records.read(key)
        etag = None if record is None else record.etag
        await self._records.write(key, msgspec.json.encode(policy), if_match=etag)
