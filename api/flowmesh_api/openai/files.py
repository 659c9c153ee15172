"""Files of OpenAI's API: what a batch reads and writes."""

import msgspec


class FileObject(msgspec.Struct, frozen=True):
    """A file.

    Attributes:
        purpose: ``batch``, or ``batch_output`` where a batch wrote it.
    """

    id: str
    bytes: int
    created_at: int
    filename: str
    purpose: str
    object: str = "file"
    status: str = "processed"


class FileList(msgspec.Struct, frozen=True):
    """A page of files, the latest first."""

    data: tuple[FileObject, ...]
    has_more: bool = False
    first_id: str | None = None
    last_id: str | None = None
    object: str = "list"


class FileDeleted(msgspec.Struct, frozen=True):
    """A deleted file."""

    id: str
    object: str = "file"
    deleted: bool = True
