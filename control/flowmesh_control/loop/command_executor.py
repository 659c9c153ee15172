"""Executes the machine's commands and posts their results as events.

Commands for a connected worker or for the ledger's memory are executed at once. Commands that touch
the store become tasks of the pool, queued for the namespace that they are done for: the pool runs
them concurrently, serves the namespaces in turn, and retries while the store is unavailable. A task
whose result is no longer awaited is dropped when its turn comes.
"""

import contextlib
import itertools
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from flowmesh_control.loop.content_comparison import ContentComparison
from flowmesh_control.loop.pending_puts import PendingPut, PendingPuts
from flowmesh_control.loop.task_pool import TaskPool, Work
from flowmesh_control.ports import Finisher, SecretReader, TaskOwners, WorkerChannel
from flowmesh_control.public_errors import public_error
from flowmesh_core.accounting.ledger_lines import Line
from flowmesh_core.dataset import encode_manifest
from flowmesh_core.errors import (
    BlobCorruptError,
    BlobNotFoundError,
    Failure,
    FailureKind,
    FlowMeshError,
    LostBlobError,
    StoreFullError,
    StoreUnavailableError,
)
from flowmesh_core.machine.commands import (
    Acknowledge,
    AppendLedgerLine,
    Assign,
    AttemptSettled,
    CancelAttempt,
    CheckBlobs,
    Command,
    CompareContent,
    ConfirmAttempts,
    DeleteCorruptBlobs,
    DrainWorker,
    EvaluateCondition,
    FinalizeRun,
    LookUp,
    Prewarm,
    Publish,
    PutBlob,
    PutManifest,
    RunChanged,
    Serve,
)
from flowmesh_core.machine.events import (
    BlobsChecked,
    Event,
    LookedUp,
    ProtocolViolated,
    PublishDelayed,
    Published,
    PublishFailed,
    RunFinalized,
)
from flowmesh_core.protocol.messages import AttemptEnd, FailureReport
from flowmesh_core.protocol.results import ActionResult
from flowmesh_store.action_cache import ActionCache
from flowmesh_store.blobs import BlobViews

SecretsUsed = Callable[[str, str, str, Mapping[str, Sequence[str]]], None]
"""Called with a namespace, an attempt's id, its worker, and the hosts of each secret by name."""


class CommandExecutor:
    """Implements :class:`Executor` with store, workers and ledger."""

    def __init__(
        self,
        *,
        store: BlobViews,
        needed: BlobViews,
        cache: ActionCache,
        fleet: WorkerChannel,
        tasks: TaskPool,
        append: Callable[[str, Line], None],
        settled: Callable[[AttemptSettled], None],
        finish: Finisher,
        changed: Callable[[str], None],
        secrets: SecretReader,
        secrets_used: SecretsUsed,
        owners: TaskOwners,
        evaluate: Callable[[EvaluateCondition], None],
        published: Callable[[str, ActionResult], None],
        post: Callable[[Event], None],
    ) -> None:
        """Keeps what commands are executed with.

        Args:
            store: has the blobs.
            needed: the same with retries, for blobs that should exist.
            cache: the action cache.
            fleet: sends to the workers.
            tasks: runs store tasks.
            append: adds a line to a run's ledger.
            settled: called with every end of an attempt.
            finish: makes a run's end durable.
            changed: called with the uid of a run whose status changed.
            secrets: reads secrets for attempts.
            secrets_used: called before secrets are sent.
            owners: says for which namespaces a task is done.
            evaluate: has a condition evaluated; its result comes as an event.
            published: called with the scope and the result of a publication.
            post: posts an event to the machine.
        """
        self._store = store
        self._needed = needed
        self._cache = cache
        self._fleet = fleet
        self._tasks = tasks
        self._append = append
        self._finisher = finish
        self._changed = changed
        self._secrets = secrets
        self._secrets_used = secrets_used
        self._owners = owners
        self._published = published
        self._post = post
        self._puts = PendingPuts()
        self._comparison = ContentComparison(needed)
        self._table: Mapping[type, Callable[[Any], None]] = {
            LookUp: self._later(self._look_up),
            Publish: self._later(self._publish),
            PutManifest: self._put_later,
            PutBlob: self._put_later,
            CheckBlobs: self._later(self._check_blobs),
            DeleteCorruptBlobs: self._later(self._discard),
            CompareContent: self._later(self._compare),
            EvaluateCondition: evaluate,
            FinalizeRun: self._finish_later,
            Assign: self._assign,
            CancelAttempt: lambda c: fleet.cancel(c.worker, c.attempt_id),
            Prewarm: lambda c: fleet.prewarm(c.worker, c.openings),
            Serve: lambda c: fleet.serve(c.worker, c.replicas, c.routers),
            Acknowledge: lambda c: fleet.acknowledge(c.worker, c.attempt_id),
            ConfirmAttempts: lambda c: fleet.confirm_attempts(c.worker, c.keep),
            DrainWorker: self._drain_worker,
            AppendLedgerLine: lambda c: append(c.uid, c.line),
            AttemptSettled: settled,
            RunChanged: lambda c: changed(c.uid),
        }

    def execute(self, commands: Sequence[Command]) -> None:
        """As :meth:`Executor.execute`."""
        table = self._table
        for command in commands:
            table[type(command)](command)

    def flush(self) -> None:
        """As :meth:`Executor.flush`."""
        self._fleet.flush()

    @property
    def backlog(self) -> int:
        """As :attr:`Executor.backlog`."""
        return self._tasks.backlog

    def _later(self, job: Work) -> Callable[[Any], None]:
        give, namespaces = self._tasks.submit, self._owners.namespaces
        return lambda command: give(job, command, namespaces(command))

    def _look_up(self, c: LookUp) -> Awaitable[None] | None:
        if not self._owners.awaits(c):
            return None
        if not self._cache.may_have(c.key.action_id):  # as a rule, and then nothing has to wait
            self._post(LookedUp(c.key, None, c.scopes, c.not_before_s, c.min_trust))
            return None
        return self._look_up_in_store(c)

    async def _look_up_in_store(self, c: LookUp) -> None:
        found = await self._cache.lookup(
            c.key.action_id, c.scopes, not_before_s=c.not_before_s, min_trust=c.min_trust
        )
        result = None if found is None else found.result
        found_in = "" if found is None or found.scope == c.key.scope else found.scope
        self._post(LookedUp(c.key, result, c.scopes, c.not_before_s, c.min_trust, found_in))

    async def _publish(self, c: Publish) -> None:
        attempt_id = c.result.provenance.attempt_id
        if attempt_id and not self._owners.awaits(c):
            return  # the attempt was given up, and its blobs may have been deleted
        try:
            event = await self._written(c)
        except StoreUnavailableError:
            raise
        except StoreFullError as e:
            if self._owners.awaits(c):  # else the attempt was given up
                self._post(PublishDelayed(c.key, _store_failure(e), attempt_id))
                raise StoreUnavailableError(e.message, where=e.where, remedy=e.remedy) from e
        except FlowMeshError as e:
            self._post(PublishFailed(c.key, _store_failure(e), attempt_id))
        else:
            if not event.adopted:
                self._published(c.key.scope, event.result)
            self._post(event)

    async def _written(self, c: Publish) -> Published:
        scope, result = c.key.scope, c.result
        if c.copy_from:
            await self._copy(c)
        standing = None
        if c.replace:
            standing = await self._cache.lookup(c.key.action_id, [scope])
        if standing is None:
            now = await self._cache.publish(
                scope, result, not_before_s=c.not_before_s, min_trust=c.min_trust
            )
        elif (
            standing.result.generation >= result.generation
            and standing.result.created_s >= c.not_before_s
            and standing.result.provenance.trust >= c.min_trust
        ):
            now = standing
        else:
            now = await self._cache.replace(standing, result)
        # A publication that was interrupted after its write finds its own record: no adoption.
        ours = now.won or now.result.provenance.attempt_id == result.provenance.attempt_id
        attempt_id = result.provenance.attempt_id
        return Published(c.key, now.result, adopted=not ours, attempt_id=attempt_id)

    async def _copy(self, c: Publish) -> None:
        """Copies what a composed result names to its scope; a lost blob is repaired when read."""
        result = c.result
        named = {d for artifact in result.outputs.values() for d in artifact.blobs()}
        composed = {a.blob for a in result.outputs.values() if a.manifest is not None}
        view = self._store.view(write=c.key.scope, read=c.copy_from)
        await view.copy(named - composed - result.inline.keys())

    def _put_later(self, c: PutManifest | PutBlob) -> None:
        pending = self._puts.begin(c.uid, (c.scope, c.digest))
        self._tasks.submit(self._put, (c, pending), self._owners.namespaces(c))

    async def _put(self, given: tuple[PutManifest | PutBlob, PendingPut]) -> None:
        c, pending = given
        data = c.data if isinstance(c, PutBlob) else encode_manifest(c.manifest)
        blobs = self._store.view(write=c.scope, read=(c.scope,))
        with contextlib.suppress(LostBlobError):
            # Reading finds and deletes a damaged copy, which a put would keep. It must not stay,
            # because references to outputs are issued.
            await blobs.get(c.digest)
        try:
            await blobs.put(c.digest, data)
        except StoreFullError as e:
            raise StoreUnavailableError(e.message, where=e.where, remedy=e.remedy) from e
        self._puts.end(pending)

    async def _check_blobs(self, c: CheckBlobs) -> None:
        if not self._owners.awaits(c):
            return
        # Blobs that are being stored count as present: the run's end waits for them.
        missing = set()
        for scope, digests in c.digests.items():
            places = itertools.product(dict.fromkeys((scope, *c.read_scopes)), digests)
            on_the_way = self._puts.join(c.uid, frozenset(places))
            # As many requests as there are blobs, where all are there as they should be.
            own = self._store.view(write=scope, read=(scope,))
            doubtful = await own.missing(digests - on_the_way, c.sizes)
            if not doubtful:
                continue
            # A copy of a wrong size would stay, and be linked to, if it were not read.
            wrong = (doubtful & c.sizes.keys()) - await own.missing(doubtful)
            if wrong:
                await self._discard(DeleteCorruptBlobs(frozenset(wrong), c.uid, (scope,)))
            view = self._needed.view(write=scope, read=c.read_scopes)
            missing |= await view.copy(doubtful)
        self._post(BlobsChecked(c.uid, frozenset(missing)))

    async def _discard(self, c: DeleteCorruptBlobs) -> None:
        with tempfile.TemporaryDirectory(prefix="flowmesh-check-") as scratch:
            for scope, digest in itertools.product(c.scopes, sorted(c.digests)):
                target = Path(scratch) / digest
                try:
                    # Reading verifies; the store deletes a blob that fails twice.
                    await self._store.view(write=scope, read=(scope,)).fetch(digest, target)
                except (BlobCorruptError, BlobNotFoundError):
                    continue
                target.unlink()

    async def _compare(self, c: CompareContent) -> None:
        mismatch = await self._comparison.mismatch(c)
        if mismatch:
            producer = c.result.provenance
            self._post(ProtocolViolated(producer.worker, mismatch, producer.pool))

    def _finish_later(self, c: FinalizeRun) -> None:
        """Queues a run's end after its pending puts: ``final`` must not name missing blobs."""
        namespaces = self._owners.namespaces(c)
        self._puts.after(c.uid, lambda: self._tasks.submit(self._finish, c, namespaces))

    async def _finish(self, c: FinalizeRun) -> None:
        await self._finisher.finish(c.uid)
        self._post(RunFinalized(c.uid))
        self._changed(c.uid)

    def _drain_worker(self, c: DrainWorker) -> None:
        self._fleet.drain(c.worker)

    def _assign(self, c: Assign) -> None:
        if c.secrets:
            self._tasks.submit(self._assign_with_secrets, c, (c.namespace,))
        else:
            self._fleet.assign(c.worker, c.assignment, c.generation, c.read_scopes)

    async def _assign_with_secrets(self, c: Assign) -> None:
        try:
            found = await self._secrets.read(c.namespace, c.secrets, c.assignment.engine)
        except StoreUnavailableError:
            raise
        except FlowMeshError as e:
            self._refuse(c, e)
            return
        hosts = {name: secret.hosts or () for name, secret in found.items()}
        self._secrets_used(c.namespace, c.assignment.attempt_id, c.worker, hosts)
        assignment = msgspec.structs.replace(
            c.assignment,
            secrets={name: secret.value for name, secret in found.items()},
            secret_hosts={name: secret.hosts for name, secret in found.items()},
        )
        self._fleet.assign(c.worker, assignment, c.generation, c.read_scopes)
        self._fleet.flush()

    def _refuse(self, c: Assign, error: FlowMeshError) -> None:
        """Reports the failure of an attempt that was never sent, as its worker would have."""
        report = FailureReport(
            kind=FailureKind.BAD_INPUT, message=error.message, remedy=error.remedy
        )
        end = AttemptEnd(c.assignment.attempt_id, c.assignment.action_id, failure=report)
        self._fleet.report(c.worker, end)


def _store_failure(error: FlowMeshError) -> Failure:
    shown = public_error(error)
    return Failure(
        FailureKind.STORE,
        f"the result could not be published: {shown.message}",
        remedy=shown.remedy or "see that the store has space and is writable",
        retry_after_s=5.0,
    )
