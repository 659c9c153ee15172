"""The services of OpenAI's API, made together."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flowmesh_control.loop.clock import Clock
from flowmesh_control.openai.batches import BatchService
from flowmesh_control.openai.files import UploadedFiles
from flowmesh_control.openai.models import ModelNames
from flowmesh_control.openai.output_files import OutputFiles
from flowmesh_control.openai.records import (
    BATCHES,
    FILES,
    BatchRecord,
    FileRecord,
    OpenAiRecords,
)
from flowmesh_control.openai.results import BatchResults
from flowmesh_control.openai.status import BatchStatuses
from flowmesh_control.queries.partial_outputs import PartialOutputs
from flowmesh_control.queries.run_views import RunViews
from flowmesh_control.runs.commands import RunCommands
from flowmesh_control.runs.uploads import UploadStore
from flowmesh_core.catalog.contract import EngineContract, PortKind
from flowmesh_core.protocol.messages import WorkerShape
from flowmesh_core.protocol.results import Artifact
from flowmesh_store.store import Store


@dataclass(frozen=True, slots=True)
class OpenAiServices:
    """What the handlers of OpenAI's API use.

    Attributes:
        files: that users uploaded.
        batches: creates and cancels them.
        statuses: describes them.
        outputs: reads all files.
    """

    files: UploadedFiles
    batches: BatchService
    statuses: BatchStatuses
    outputs: OutputFiles

    async def stored_content(self) -> list[tuple[tuple[str, ...], Artifact]]:
        """Returns the bytes of files and the indexes of batches, each with its scope."""
        found = [(f.scope, f.blob) for f in await self.files.records.all()]
        found += [(b.scope, b.index) for b in await self.batches.batches.all() if b.index]
        return [((scope,), Artifact(PortKind.BLOB, blob, blob)) for scope, blob in found]

    @classmethod
    def of(
        cls,
        *,
        store: Store,
        uploads: UploadStore,
        commands: RunCommands,
        views: RunViews,
        models: ModelNames,
        engine: EngineContract,
        shapes: Callable[[], Sequence[WorkerShape]],
        stored: Callable[[str, int], None],
        patience_s: float,
        clock: Clock,
    ) -> "OpenAiServices":
        """Makes them.

        Args:
            store: has records and files.
            uploads: stores rows.
            commands: submits and cancels runs.
            views: of runs.
            models: resolves names of models.
            engine: that answers.
            shapes: of the connected workers, and of pools that can grow.
            stored: called with the scope and the size of a file that was stored.
            patience_s: how long a batch waits for the first worker; 0 where more may come.
            clock: Unix time in seconds.
        """
        files = OpenAiRecords(store.records, FILES, FileRecord)
        batches = OpenAiRecords(store.records, BATCHES, BatchRecord)
        results = BatchResults(PartialOutputs(views, store), store)
        statuses = BatchStatuses(batches, views, results)
        service = BatchService(
            batches=batches,
            files=files,
            store=store,
            uploads=uploads,
            commands=commands,
            has_ended=views.has_ended,
            models=models,
            engine=engine,
            shapes=shapes,
            patience_s=patience_s,
            clock=clock,
        )
        return cls(
            UploadedFiles(files, store, stored, clock),
            service,
            statuses,
            OutputFiles(files, batches, statuses, results, store),
        )
