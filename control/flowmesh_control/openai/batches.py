"""Creates batches: reads their files in the background, and submits each as a run.

A batch is a record first, so that it survives the control plane: one whose file was not read yet is
read by the next leader. The uid of its run is in the record, so that it is submitted once.
"""

import asyncio
import contextlib
import logging
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from flowmesh_api.openai.batches import CreateBatchBody
from flowmesh_control.errors import QuotaExceededError
from flowmesh_control.evaluators.fair_places import FairPlaces, in_thread
from flowmesh_control.loop.clock import Clock
from flowmesh_control.openai.documents import require_budget, workflow_of
from flowmesh_control.openai.input_file import index_of, read_input_file
from flowmesh_control.openai.models import ModelNames
from flowmesh_control.openai.records import (
    BatchRecord,
    FailedLine,
    FileRecord,
    OpenAiRecords,
    new_id,
)
from flowmesh_control.runs.admission import Submission
from flowmesh_control.runs.commands import RunCommands
from flowmesh_control.runs.uploads import UploadStore
from flowmesh_core.catalog.contract import EngineContract
from flowmesh_core.errors import FlowMeshError, StoreFullError
from flowmesh_core.identity import digest_bytes
from flowmesh_core.openai.batch_lines import BatchFileError, BatchLines
from flowmesh_core.openai.errors import OpenAiError, invalid_value
from flowmesh_core.openai.request import ENDPOINTS
from flowmesh_core.protocol.messages import WorkerShape
from flowmesh_core.spec.quantities import seconds
from flowmesh_store.blobs import BlobViews
from flowmesh_store.spool import SpooledFile

log = logging.getLogger("flowmesh.control")

AT_ONCE = 2
"""Files that are read at the same time; of one namespace one, while another waits."""
_RETRY_S = 2.0
_POLL_S = 0.1
_METADATA = 16
_KEY_CHARS, _VALUE_CHARS = 64, 512
_ROWS = "requests.jsonl"
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchService:
    """Creates and cancels batches.

    Attributes:
        batches: their records; ``files`` are those of uploaded files.
        store: has the files.
        uploads: stores rows.
        commands: submits and cancels runs.
        has_ended: whether a run's end is durable.
        models: resolves names of models.
        engine: that answers.
        shapes: of the connected workers, and of pools that can grow.
        patience_s: how long a batch waits for the first worker of a fleet that is fixed; 0 where
            workers may come at any time.
        clock: Unix time in seconds.
        waiting: batches whose files are to be read.
        places: of those that are read, and of plans.
    """

    batches: OpenAiRecords[BatchRecord]
    files: OpenAiRecords[FileRecord]
    store: BlobViews
    uploads: UploadStore
    commands: RunCommands
    has_ended: Callable[[str], bool]
    models: ModelNames
    engine: EngineContract
    shapes: Callable[[], Sequence[WorkerShape]]
    patience_s: float
    clock: Clock
    waiting: "asyncio.Queue[BatchRecord]" = field(default_factory=asyncio.Queue)
    places: FairPlaces = field(default_factory=lambda: FairPlaces(AT_ONCE))

    async def run(self) -> None:
        """Reads files of batches, those of an earlier leader first, until it is cancelled."""
        for batch in await _retried(self.batches.readable):
            if batch.is_validating:
                self.waiting.put_nowait(batch)
        async with asyncio.TaskGroup() as readers:
            while True:
                readers.create_task(self._read_file(await self.waiting.get()))

    async def uids(self) -> frozenset[str]:
        """Returns the uids of the runs of all batches."""
        return frozenset(batch.uid for batch in await self.batches.all())

    async def create(
        self, namespace: str, labels: Mapping[str, str], scope: str, body: CreateBatchBody
    ) -> BatchRecord:
        """Creates a batch; its file is read soon.

        Args:
            namespace: of the user.
            labels: of the namespace.
            scope: the namespace's own.
            body: the request.

        Raises:
            OpenAiError: a parameter is wrong, or the namespace has no such file.
            StoreError: it could not be written.
        """
        _check(body)
        await self.files.read(namespace, body.input_file_id)
        now_s = self.clock()
        name = new_id("batch_", now_s)
        batch = BatchRecord(
            id=name,
            namespace=namespace,
            uid=name.replace("_", "-"),
            endpoint=body.endpoint,
            file_id=body.input_file_id,
            window=body.completion_window,
            created_s=now_s,
            scope=scope,
            metadata=body.metadata or {},
            namespace_labels=dict(labels),
        )
        await self.batches.write(batch)
        self.waiting.put_nowait(batch)
        return batch

    async def cancel(self, batch: BatchRecord) -> BatchRecord:
        """Cancels a batch that has not ended; what is done stays.

        Raises:
            StoreError: the request could not be written.
        """
        now_s = self.clock()
        batch = await self.batches.change(
            batch, lambda b: msgspec.structs.replace(b, cancelling_s=b.cancelling_s or now_s)
        )
        if batch.index and not self.has_ended(batch.uid):
            await self.commands.cancel(batch.uid, "cancelled by the user")
        return batch

    async def _read_file(self, batch: BatchRecord) -> None:
        async with self.places.place(batch.namespace):
            try:
                await _retried(partial(self._start, batch))
            except Exception:  # one batch must end neither the others nor the control plane
                log.exception("batch %s cannot be started", batch.id)

    async def _start(self, named: BatchRecord) -> None:
        """Reads a batch's file and submits its run; repeats what an earlier leader began."""
        batch = await self.batches.read(named.namespace, named.id)
        if not batch.is_validating:
            return
        try:
            batch = await self._submitted(batch)
        except FlowMeshError as e:
            if _is_passing(e):
                raise
            batch = msgspec.structs.replace(batch, failed=_failed(e), failed_s=self.clock())
        except Exception:
            log.exception("the file of batch %s could not be read", batch.id)
            failed = FailedLine("internal_error", "The input file could not be read.")
            batch = msgspec.structs.replace(batch, failed=failed, failed_s=self.clock())
        read = batch
        batch = await self.batches.change(
            read, lambda b: msgspec.structs.replace(read, cancelling_s=b.cancelling_s)
        )
        if batch.cancelling_s and batch.index:
            await self.cancel(batch)

    async def _submitted(self, batch: BatchRecord) -> BatchRecord:
        view = self.store.view(write=batch.scope, read=(batch.scope,))
        rows, found = await self._requests(batch)
        index = await asyncio.to_thread(index_of, found)
        digest = digest_bytes(index)
        await view.put(digest, index)
        await self._submit(batch, rows, found)
        return msgspec.structs.replace(
            batch,
            index=digest,
            total=found.total,
            wrong=len(found.wrong),
            started_s=self.clock(),
        )

    async def plan(self, batch: BatchRecord) -> tuple[BatchLines, dict[str, Any]]:
        """Returns what is known of a batch's file, and the workflow that the batch would be.

        It waits for a place as batches do: tenants share these, and the threads that read files.

        Raises:
            OpenAiError: there is no such file or model, or the file cannot be a batch.
            StoreError: it cannot be read, or the rows not be written.
        """
        async with self.places.place(batch.namespace):
            rows, found = await self._requests(batch)
            return found, await self._document(batch, rows, found)

    async def _requests(self, batch: BatchRecord) -> tuple[SpooledFile, BatchLines]:
        """Returns the rows of a batch's file, and what else is known of it; raises as plan."""
        file = await self.files.read(batch.namespace, batch.file_id)
        view = self.store.view(write=batch.scope, read=(batch.scope,))
        with tempfile.TemporaryDirectory(prefix="flowmesh-batch-") as scratch:
            source = Path(scratch, "input.jsonl")
            await view.fetch(file.blob, source)
            return await in_thread(read_input_file, source, batch.endpoint, view.spool())

    async def _document(
        self, batch: BatchRecord, rows: SpooledFile, found: BatchLines
    ) -> dict[str, Any]:
        """Stores the rows of a batch, and returns its workflow; raises as plan."""
        try:
            model = self.models.source(found.model)
        except OpenAiError:
            rows.discard()
            raise
        stored = await self.uploads.put_upload(_ROWS, rows, batch.scope)
        shapes = await self._fleet()
        return workflow_of(batch, stored.reference, model, self.engine, shapes)

    async def _submit(self, batch: BatchRecord, rows: SpooledFile, found: BatchLines) -> None:
        document = await self._document(batch, rows, found)
        await self.commands.submit(
            Submission(
                document,
                namespace=batch.namespace,
                labels=batch.namespace_labels,
                uid=batch.uid,
            )
        )

    async def _fleet(self) -> Sequence[WorkerShape]:
        """Returns the connected workers, whose devices decide how the engine runs."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self.patience_s):
                while self.patience_s and not self.shapes():  # noqa: ASYNC110 - joins have no event
                    await asyncio.sleep(_POLL_S)
        return self.shapes()


def require_endpoint(endpoint: str) -> None:
    """Refuses an endpoint that batches do not have.

    Raises:
        OpenAiError: it is another.
    """
    if endpoint not in ENDPOINTS:
        supported = ", ".join(f"'{e}'" for e in ENDPOINTS)
        raise invalid_value("endpoint", f"supported values are {supported}.")


def _check(body: CreateBatchBody) -> None:
    require_endpoint(body.endpoint)
    try:
        window_s = seconds(body.completion_window)
    except ValueError:
        window_s = 0.0
    if not window_s:
        raise invalid_value("completion_window", "expected a duration such as 24h, 90m or 30s.")
    _check_metadata(body.metadata or {})


def _check_metadata(metadata: Mapping[str, str]) -> None:
    if len(metadata) > _METADATA:
        raise invalid_value("metadata", f"expected at most {_METADATA} keys.")
    for key, value in metadata.items():
        if not 1 <= len(key) <= _KEY_CHARS or len(value) > _VALUE_CHARS:
            raise invalid_value(
                f"metadata.{key[:_KEY_CHARS]}",
                f"keys have 1 to {_KEY_CHARS} characters, values at most {_VALUE_CHARS}.",
            )
    try:
        require_budget(metadata)
    except (ValueError, ArithmeticError) as e:
        raise invalid_value("metadata.budget_usd", f"{e}.") from None


def _failed(error: FlowMeshError) -> FailedLine:
    if isinstance(error, QuotaExceededError):
        return FailedLine("quota_exceeded", str(error))
    if isinstance(error, BatchFileError):
        return FailedLine(error.code or "", error.message, error.line or 0)
    if isinstance(error, OpenAiError):
        return FailedLine(error.code or "invalid_request", error.message)
    return FailedLine("invalid_request", str(error))


def _is_passing(error: FlowMeshError) -> bool:
    """Whether the same call may succeed later."""
    return error.retryable or isinstance(error, StoreFullError)


async def _retried(call: Callable[[], Awaitable[_Result]]) -> _Result:
    """Repeats a call while the store, or a process that it needs, is not there."""
    while True:
        try:
            return await call()
        except FlowMeshError as e:
            if not _is_passing(e):
                raise
            log.warning("batches wait: %s", e)
            await asyncio.sleep(_RETRY_S)
