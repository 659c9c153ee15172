"""All files of a namespace by id: uploaded ones, and those that batches wrote."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from flowmesh_api.openai.files import FileObject
from flowmesh_control.openai.files import file_object
from flowmesh_control.openai.records import BatchRecord, FileRecord, OpenAiRecords
from flowmesh_control.openai.results import BatchResults, in_pieces
from flowmesh_control.openai.status import BatchStatuses, error_name, output_name
from flowmesh_control.queries.downloads import pieces_of
from flowmesh_core.openai.errors import OpenAiError
from flowmesh_store.blobs import BlobViews

_NOT_FOUND = 404
_OUTPUT = "batch_output"
_SUFFIXES = ("-output", "-errors")


@dataclass(frozen=True, slots=True)
class OutputFiles:
    """Reads files.

    Attributes:
        files: records of uploaded files; ``batches`` are those of batches.
        statuses: says which batches have ended.
        results: composes the files of batches.
        store: has the uploaded ones.
    """

    files: OpenAiRecords[FileRecord]
    batches: OpenAiRecords[BatchRecord]
    statuses: BatchStatuses
    results: BatchResults
    store: BlobViews

    async def file(self, namespace: str, name: str) -> FileObject:
        """Describes a file.

        Raises:
            OpenAiError: the namespace has none of this id.
        """
        if not name.endswith(_SUFFIXES):
            return file_object(await self.files.read(namespace, name))
        batch, lines = await self._written(namespace, name)
        size_bytes = sum([len(piece) async for piece in lines])
        return FileObject(
            name, size_bytes, int(batch.created_s), f"{batch.id}{name[-7:]}.jsonl", _OUTPUT
        )

    async def content(self, namespace: str, name: str) -> AsyncIterator[bytes]:
        """Returns the bytes of a file in pieces; raises as :meth:`file`."""
        if name.endswith(_SUFFIXES):
            return (await self._written(namespace, name))[1]
        record = await self.files.read(namespace, name)
        return self._uploaded(record)

    async def _uploaded(self, record: FileRecord) -> AsyncIterator[bytes]:
        view = self.store.view(write=record.scope, read=(record.scope,))
        async for piece in pieces_of(view, record.blob, record.size_bytes):
            yield piece

    async def _written(self, namespace: str, name: str) -> tuple[BatchRecord, AsyncIterator[bytes]]:
        stem = name.removeprefix("file-")[: -len(_SUFFIXES[0])]
        missing = OpenAiError(f"No such File object: {name[:80]}", param="id", status=_NOT_FOUND)
        try:
            batch = await self.batches.read(namespace, f"batch_{stem}")
        except OpenAiError:
            raise missing from None
        shown = await self.statuses.describe(batch)
        if name == output_name(batch) and shown.output_file_id is not None:
            return batch, in_pieces(self.results.output_lines(batch))
        if name == error_name(batch) and shown.error_file_id is not None:
            return batch, in_pieces(self.results.error_lines(batch, shown.status))
        raise missing
