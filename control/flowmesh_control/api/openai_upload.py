"""Receives the form of ``POST /openai/v1/files`` into a spool file."""

import asyncio
from dataclasses import dataclass

from aiohttp import BodyPartReader, MultipartReader, StreamReader, web
from aiohttp.http_exceptions import HttpProcessingError

from flowmesh_control.api.authorization import AuthorizedRequest
from flowmesh_control.openai.files import PURPOSE
from flowmesh_control.quotas.uploaded_bytes import UploadedBytes
from flowmesh_core.openai.errors import OpenAiError, invalid_value, missing_parameter
from flowmesh_store.blobs import BlobViews
from flowmesh_store.spool import SpooledFile

MAX_FILE_BYTES = 200_000_000
LINES_MAX = 1000
_FORM_BYTES = 65_536
_PIECE_BYTES = 1 << 20
_NAME_CHARS = 255
_TOO_LARGE = 413


@dataclass(frozen=True, slots=True)
class UploadLimits:
    """What bounds uploads.

    Attributes:
        store: where files are spooled.
        uploaded: counts what namespaces upload.
        file_bytes_max: of one file.
    """

    store: BlobViews
    uploaded: UploadedBytes
    file_bytes_max: int = MAX_FILE_BYTES


async def receive_file(
    call: AuthorizedRequest, limits: UploadLimits, scope: str
) -> tuple[str, SpooledFile]:
    """Returns the name and the content of the form's file.

    Args:
        call: a request with a form.
        limits: bound it.
        scope: where the file will be stored.

    Raises:
        OpenAiError: it is not a form with a file and the purpose ``batch``, or too large.
        QuotaExceededError: the namespace has uploaded too much.
    """
    request = call.request
    announced = request.content_length or 0
    if announced > limits.file_bytes_max + _FORM_BYTES:
        raise _too_large(limits)
    if request.content_type != "multipart/form-data":
        raise OpenAiError("The body is not a form: expected multipart/form-data.", param="file")
    meter = await limits.uploaded.begin(call.namespace, announced)
    purpose, received = "", None
    try:
        async for part in _parts(request):
            if part.name == "purpose":
                purpose = (await _piece(part, _FORM_BYTES)).decode(errors="replace")
            elif part.name == "file" and received is None:
                received = (_file_name(part), await _spooled(part, limits, scope, meter.count))
        _require_purpose(purpose)
    except BaseException:
        if received is not None:
            received[1].discard()
        raise
    if received is None:
        raise missing_parameter("file")
    return received


class _Body:
    """The body of a form, of which few lines are boundaries and headers.

    aiohttp reads these one by one, a hundred times slower than the bytes of a file, also in parts
    that are not used.
    """

    def __init__(self, content: StreamReader) -> None:
        self._lines = 0
        self._content = content
        self.read, self.at_eof = content.read, content.at_eof
        self.unread_data = content.unread_data

    async def readline(self, **limits: int) -> bytes:
        self._lines += 1
        if self._lines > LINES_MAX:
            text = f"The form has more than {LINES_MAX} lines beside its file."
            raise OpenAiError(text, param="file")
        return await self._content.readline(**limits)


async def _parts(request: web.Request):  # type: ignore[no-untyped-def]
    try:
        reader = MultipartReader(request.headers, _Body(request.content))  # type: ignore[arg-type]
        while (part := await reader.next()) is not None:
            if isinstance(part, BodyPartReader):
                yield part
    except HttpProcessingError as e:
        raise OpenAiError(f"The form cannot be read: {e.message}", param="file") from e
    except ValueError as e:
        raise OpenAiError(f"The form cannot be read: {e}", param="file") from e


async def _spooled(part, limits, scope, count) -> SpooledFile:  # type: ignore[no-untyped-def]
    with limits.store.view(write=scope, read=()).spool() as writer:
        while piece := await part.read_chunk(_PIECE_BYTES):
            count(len(piece))
            if writer.size_bytes + len(piece) > limits.file_bytes_max:
                raise _too_large(limits)
            await asyncio.to_thread(writer.write, piece)
        return await asyncio.to_thread(writer.finish)


async def _piece(part: BodyPartReader, size: int) -> bytes:
    found = b""
    while piece := await part.read_chunk(size):
        found += piece
        if len(found) > size:
            raise OpenAiError("A field of the form is too long.", param=part.name)
    return found


def _file_name(part: BodyPartReader) -> str:
    name = part.filename or "file"
    if not name.isprintable() or len(name) > _NAME_CHARS:
        raise invalid_value("file", f"expected a printable name of at most {_NAME_CHARS}.")
    return name


def _require_purpose(purpose: str) -> None:
    if not purpose:
        raise missing_parameter("purpose")
    if purpose != PURPOSE:
        raise OpenAiError(
            f"Invalid value: '{purpose[:40]}'. Supported values are: '{PURPOSE}'.",
            param="purpose",
            code="invalid_value",
        )


def _too_large(limits: UploadLimits) -> OpenAiError:
    return OpenAiError(
        f"The file is larger than {limits.file_bytes_max} bytes; split it.",
        param="file",
        code="file_too_large",
        status=_TOO_LARGE,
    )
