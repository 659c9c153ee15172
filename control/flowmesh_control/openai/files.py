"""Uploaded files of OpenAI's API: bytes in the namespace's own scope, and a record."""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from flowmesh_api.openai.files import FileList, FileObject
from flowmesh_control.loop.clock import Clock
from flowmesh_control.openai.records import FileRecord, OpenAiRecords, new_id
from flowmesh_store.blobs import BlobViews
from flowmesh_store.spool import SpooledFile

PURPOSE = "batch"


@dataclass(frozen=True, slots=True)
class UploadedFiles:
    """Stores, lists and deletes files.

    Attributes:
        records: of the files.
        store: has their bytes.
        stored: called with the scope and the size of a file that was stored.
        clock: Unix time in seconds.
    """

    records: OpenAiRecords[FileRecord]
    store: BlobViews
    stored: Callable[[str, int], None]
    clock: Clock

    async def create(
        self, namespace: str, scope: str, filename: str, spooled: SpooledFile
    ) -> FileRecord:
        """Stores a file.

        Args:
            namespace: of the user.
            scope: the namespace's own.
            filename: as the user named it.
            spooled: its content, which is removed.

        Raises:
            StoreError: it could not be stored.
        """
        blob, size_bytes = spooled.digest, spooled.size_bytes
        await self.store.view(write=scope, read=(scope,)).put_spooled(spooled)
        self.stored(scope, size_bytes)
        now_s = self.clock()
        record = FileRecord(
            new_id("file-", now_s), namespace, filename, size_bytes, now_s, blob, scope
        )
        await self.records.write(record)
        return record

    async def delete(self, namespace: str, name: str) -> None:
        """Deletes a file; batches that were created from it go on.

        Raises:
            OpenAiError: the namespace has none.
        """
        record = await self.records.read(namespace, name)
        await self.records.write(msgspec.structs.replace(record, deleted_s=self.clock()))

    async def page(self, namespace: str, after: str, limit: int) -> FileList:
        """Returns the latest files after an id."""
        found, more = await self.records.page(namespace, after, limit)
        shown = tuple(file_object(record) for record in found)
        return FileList(shown, more, *_ends(shown))


def file_object(record: FileRecord) -> FileObject:
    """Returns an uploaded file as the API shows it."""
    return FileObject(record.id, record.size_bytes, int(record.created_s), record.filename, PURPOSE)


def _ends(shown: tuple[FileObject, ...]) -> tuple[str | None, str | None]:
    return (shown[0].id, shown[-1].id) if shown else (None, None)
