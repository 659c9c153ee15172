"""Carries revocations out, and completes those that an earlier leader did not end (ADR 47).

The revocation is written first, and from then on everything refuses the content. Then what was made
from it is found, written down and deleted, so that whoever leads can repeat any part of it.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

import msgspec

from flowmesh_api.v1.revocation import RemainingContent, RevocationAnswer, RevocationReport
from flowmesh_control.errors import NewerPlanError
from flowmesh_control.loop.clock import Clock
from flowmesh_control.records.keys import RUNS
from flowmesh_control.records.known_keys import run_uids
from flowmesh_control.records.ledger import LedgerWriter
from flowmesh_control.records.revocations import Revocation, Revocations
from flowmesh_control.records.run_redaction import ConcernedRun, RunRedaction
from flowmesh_control.request_log.public_keys import PublicKeys
from flowmesh_control.request_log.signatures import Signer
from flowmesh_control.revocation.derivations import Content, DerivationFinder, Derived
from flowmesh_control.revocation.erasure import Erasable, Erased, Eraser
from flowmesh_core.errors import DamagedRecordError, StoreFullError, StoreUnavailableError
from flowmesh_core.machine.events import ContentRevoked
from flowmesh_core.machine.state import State
from flowmesh_core.units import Digest
from flowmesh_store.action_cache import ActionCache
from flowmesh_store.batched_requests import each_of, in_batches
from flowmesh_store.store import Store

log = logging.getLogger("flowmesh.control")

PAYLOAD_TYPE = "application/vnd.flowmesh.revocation.v1+json"
NOT_REACHED = (
    "backups and old versions of the bucket or of its disk",
    "what users, endpoints or workflows' own code have copied elsewhere",
    "statuses of workflow objects until the operator writes them again",
)
_RETRY_S = 5.0


class Workers(Protocol):
    """Asks workers to delete content."""

    def forget(self, digests: Sequence[Digest]) -> tuple[str, ...]:
        """Asks all connected workers to delete blobs and components; returns their names."""
        ...


class RevocationService:
    """Revokes content, one at a time."""

    def __init__(
        self,
        *,
        store: Store,
        state: State,
        ledger: LedgerWriter,
        revocations: Revocations,
        finder: DerivationFinder,
        redaction: RunRedaction,
        eraser: Eraser,
        cache: ActionCache,
        workers: Workers,
        post_and_wait: Callable[[ContentRevoked], Awaitable[None]],
        signer: Signer,
        public_keys: PublicKeys,
        clock: Clock,
    ) -> None:
        self._store = store
        self._state = state
        self._ledger = ledger
        self._revocations = revocations
        self._finder = finder
        self._redaction = redaction
        self._eraser = eraser
        self._cache = cache
        self._workers = workers
        self._post_and_wait = post_and_wait
        self._signer = signer
        self._public_keys = public_keys
        self._clock = clock
        self._lock = asyncio.Lock()

    async def every_scope(self) -> tuple[str, ...]:
        """Returns all scopes that have blobs."""
        found = {blob.scope: None async for blob in self._store.sweepable_blobs.blobs()}
        return tuple(found)

    async def preview(self, content: Content, namespace: str) -> RevocationAnswer:
        """Returns what :meth:`revoke` would do now.

        Raises:
            StoreError: something could not be read.
        """
        before = self._revocations.find(content.identity, namespace)
        generation = 1 if before is None else before.generation + 1
        one = Revocation(
            content.identity, content.kind, content.blob, namespace, self._clock(), generation
        )
        found = await self._finder.find(content, namespace, one.revoked_s)
        one = msgspec.structs.replace(one, derived=_derived(found, one))
        runs, left_out = await self._concerned(one, found)
        erasable = await self._eraser.erasable(content, found, runs)
        erased = await self._eraser.delete_blobs(erasable, found, one.event, dry_run=True)
        erased.counts["results"] = len(found.results)
        report = _report(one, found, erasable, erased, runs, left_out, ())
        return self._signed(msgspec.structs.replace(report, dry_run=True))

    async def revoke(self, content: Content, namespace: str) -> RevocationAnswer:
        """Revokes an artifact and all that was made from it.

        Args:
            content: the artifact.
            namespace: whose results and runs are concerned; all where empty.

        Raises:
            StoreError: it was not revoked; or it was, and the rest follows when it is repeated or
                when the control plane starts.
        """
        async with self._lock:
            before = self._revocations.find(content.identity, namespace)
            one = Revocation(content.identity, content.kind, content.blob, namespace, self._clock())
            if before is not None:
                one = msgspec.structs.replace(
                    one,
                    generation=before.generation + 1,
                    derived=before.derived,
                    consents=before.consents,
                    blobs=before.blobs,
                    forget=before.forget,
                )
            await self._revocations.put(one)
            return await self._carry_out(one, content.scopes)

    async def complete_interrupted(self) -> None:
        """Completes the revocations that an earlier leader began; retries until they are."""
        for one in self._revocations.all():
            while not one.is_complete:
                try:
                    async with self._lock:
                        await self._carry_out(one, await self.every_scope())
                    break
                except (StoreUnavailableError, StoreFullError) as error:
                    log.warning("the revocation of %s is repeated: %s", one.identity[:12], error)
                    await asyncio.sleep(_RETRY_S)

    async def _carry_out(self, one: Revocation, scopes: tuple[str, ...]) -> RevocationAnswer:
        await self._refuse(one)
        content = Content(one.identity, one.kind, one.blob, scopes)
        found = await self._finder.find(content, one.namespace, one.revoked_s)
        # What was made from derived content since then is concerned too.
        one = msgspec.structs.replace(
            one, derived=_derived(found, one), revoked_s=max(one.revoked_s, self._clock())
        )
        await self._revocations.put(one)
        await self._refuse(one)
        if found.runs & self._state.runs.keys():
            found = await self._finder.find(content, one.namespace, one.revoked_s)
            one = msgspec.structs.replace(one, derived=_derived(found, one))
        await self._ledger.flush_all()
        runs, left_out = await self._concerned(one, found)
        erasable = await self._eraser.erasable(content, found, runs)
        erasable.blobs = _merged(erasable.blobs, one.blobs)
        one = msgspec.structs.replace(
            one, blobs={scope: tuple(digests) for scope, digests in erasable.blobs.items()}
        )
        await self._revocations.put(one)
        deleted = await self._eraser.delete_results(found.results)
        for run in runs:
            if run.spec.uid not in self._state.runs:
                await self._redaction.redact(run)
        erased = await self._eraser.delete_blobs(erasable, found, one.event, dry_run=False)
        erased.counts["results"] = deleted
        asked = self._workers.forget(erased.forget)
        await self._public_keys.remember()
        report = _report(one, found, erasable, erased, runs, left_out, asked)
        answer = self._signed(report)
        forget = tuple(dict.fromkeys((*one.forget, *erased.forget)))
        await self._revocations.put(
            msgspec.structs.replace(
                one, blobs={}, forget=forget, is_complete=True, document=answer.document
            )
        )
        return answer

    async def _refuse(self, one: Revocation) -> None:
        """Ends what is under way on the content; then no result of it is written any more."""
        await self._post_and_wait(one.event)
        await self._cache.writes_under_way()

    async def _concerned(self, one: Revocation, found: Derived) -> tuple[list[ConcernedRun], int]:
        """Returns the runs that it concerns, and how many could not be read."""
        unreadable, event = 0, one.event

        async def read(uid: str) -> ConcernedRun | None:
            nonlocal unreadable
            try:
                is_known = uid in found.runs
                return await self._redaction.concerned(uid, event, is_known=is_known)
            except (DamagedRecordError, NewerPlanError) as error:
                unreadable += 1
                log.warning("%s%s is not redacted: %s", RUNS, uid, error)
                return None

        uids = await run_uids(self._store.records)
        runs = [run async for _, run in in_batches(each_of(uids), read) if run is not None]
        found.runs.update(run.spec.uid for run in runs)
        return runs, unreadable

    def _signed(self, report: RevocationReport) -> RevocationAnswer:
        payload = msgspec.json.encode(report) + b"\n"
        return RevocationAnswer(report, self._signer.sign(payload, PAYLOAD_TYPE).decode())


def _derived(found: Derived, one: Revocation) -> tuple[Digest, ...]:
    return tuple(sorted((found.identities | set(one.derived)) - {one.identity}))


def _merged(
    found: Mapping[str, Sequence[Digest]], before: Mapping[str, Sequence[Digest]]
) -> dict[str, Sequence[Digest]]:
    scopes = sorted({*found, *before})
    return {s: sorted({*found.get(s, ()), *before.get(s, ())}) for s in scopes}


def _report(
    one: Revocation,
    found: Derived,
    erasable: Erasable,
    erased: Erased,
    runs: Sequence[ConcernedRun],
    unreadable: int,
    asked: tuple[str, ...],
) -> RevocationReport:
    kinds = Counter(erasable.kinds.values())
    remaining = [
        RemainingContent("blobs", erased.kept_blobs, "other live content of their scope has them"),
        RemainingContent("results", len(found.others), "other namespaces made them"),
        RemainingContent("runs", unreadable, "a record of them cannot be read"),
    ]
    return RevocationReport(
        identity=one.identity,
        kind=one.kind,
        namespace=one.namespace,
        revoked_s=one.revoked_s,
        generation=one.generation,
        dry_run=False,
        found={
            "results": len(found.results),
            **{kind: kinds[kind] for kind in sorted(kinds)},
            "runs": len(found.runs),
            "steps": sum(len(run.steps) for run in runs),
        },
        deleted={name: erased.counts[name] for name in ("results", "blobs", "bytes")},
        remaining=tuple(one for one in remaining if one.count),
        workers_asked=asked,
        workers_not_connected=tuple(sorted(erasable.workers.difference(asked))),
        not_reached=NOT_REACHED,
    )
