"""The output and error files of batches, composed from the published parts of their runs.

Nothing is stored for them: a line is a row's response with the request's custom id.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import msgspec
import orjson

from flowmesh_control.openai.documents import COUNTS, RESPONSES
from flowmesh_control.openai.records import BatchIndex, BatchRecord, ErrorLine
from flowmesh_control.queries.downloads import manifest_of, read_beside_others
from flowmesh_control.queries.partial_outputs import PartialOutputs
from flowmesh_core.decoding import decode
from flowmesh_core.openai.errors import without_number_as_code
from flowmesh_store.blobs import BlobViews

_OK = 200
_PIECE_BYTES = 1 << 18
_UNSENT = {
    "expired": (
        "batch_expired",
        "This request could not be executed before the completion window expired.",
    ),
    "cancelled": ("batch_cancelled", "This request was not executed before the cancellation."),
}
_UNSENT_FAILED = ("batch_failed", "This request was not executed before the batch failed.")
_index_decoder = msgspec.json.Decoder(BatchIndex)


@dataclass(frozen=True, slots=True)
class BatchResults:
    """Reads the results of batches.

    Attributes:
        partial: reads the outputs of runs.
        store: has the indexes.
    """

    partial: PartialOutputs
    store: BlobViews

    async def counts(self, batch: BatchRecord) -> tuple[int, int]:
        """Returns how many requests have a response of status 200, and how many another."""
        completed = failed = 0
        found = await self.partial.views.partial_outputs(batch.uid)
        for part in found.get(COUNTS, ()):
            value = part.artifact.value or {}
            completed += _count(value.get("completed"))
            failed += _count(value.get("failed"))
        return min(completed, batch.total), min(failed, batch.total)

    async def output_lines(self, batch: BatchRecord) -> AsyncIterator[bytes]:
        """Yields the lines of requests that have a response of status 200.

        A row that is no response, since its worker wrote something else, is a line with an error.
        """
        index = await self._index(batch)
        async for number, response in self._responses(batch, len(index.custom_ids)):
            if response is None:
                yield _invalid_line(batch, number, index.custom_ids[number])
            elif response["status_code"] == _OK:
                yield _line(batch, number, index.custom_ids[number], response)

    async def error_lines(self, batch: BatchRecord, status: str) -> AsyncIterator[bytes]:
        """Yields wrong lines, then refused requests, then those that were not executed.

        Args:
            batch: that has ended.
            status: how it ended.
        """
        index = await self._index(batch)
        for wrong in index.wrong:
            yield _wrong_line(batch, wrong)
        executed = bytearray(len(index.custom_ids))
        async for number, response in self._responses(batch, len(index.custom_ids)):
            executed[number] = 1
            if response is not None and response["status_code"] != _OK:
                yield _line(batch, number, index.custom_ids[number], response)
        for number, custom_id in enumerate(index.custom_ids):
            if not executed[number]:
                yield _unsent_line(batch, number, custom_id, status)

    async def _index(self, batch: BatchRecord) -> BatchIndex:
        view = self.store.view(write=batch.scope, read=(batch.scope,))
        return decode(_index_decoder, await view.get(batch.index))

    async def _responses(
        self, batch: BatchRecord, requests: int
    ) -> AsyncIterator[tuple[int, dict[str, Any] | None]]:
        """Yields the number and the response of each request that was answered, in order.

        The response is None where the row is not one. Rows beyond the requests are left out.
        """
        # Imported here: pyarrow is heavy, and only downloads need it.
        from flowmesh_store.datasets import read_verified_table, table_rows  # noqa: PLC0415

        blobs, parts = await self.partial.parts(batch.uid, RESPONSES)
        for part in parts:
            number = part.first_row
            manifest = await manifest_of(blobs, part.artifact)
            for chunk in manifest.chunks:
                found = await read_beside_others(
                    lambda *one: [_response(row) for row in table_rows(read_verified_table(*one))],
                    await blobs.get(chunk.blob),
                    manifest.schema,
                    chunk,
                )
                for response in found[: max(0, requests - number)]:
                    yield number, response
                    number += 1


async def in_pieces(lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yields lines in pieces of some hundred kilobytes; at least one piece."""
    piece = bytearray()
    async for line in lines:
        piece += line
        if len(piece) >= _PIECE_BYTES:
            await asyncio.sleep(0)  # a chunk may have very many lines, and others are served too
            yield bytes(piece)
            piece = bytearray()
    yield bytes(piece)


def _count(value: Any) -> int:
    """Returns a number that a worker reported; 0 for what is not one."""
    return max(0, value) if type(value) is int else 0


def _response(row: dict[str, Any]) -> dict[str, Any] | None:
    """Returns the response of a row, or None where a worker wrote something else."""
    value = row.get("response")
    try:
        found: Any = orjson.loads(value) if isinstance(value, str) else value
        orjson.dumps(found)
    except (ValueError, TypeError):
        return None
    if not isinstance(found, dict) or type(found.get("status_code")) is not int:
        return None
    return found if isinstance(found.get("body"), dict) else None


def _line(batch: BatchRecord, number: int, custom_id: str, response: dict[str, Any]) -> bytes:
    body = without_number_as_code(response["body"])
    if "created" in body:
        body = {**body, "created": int(batch.created_s)}
    name = f"{batch.id.removeprefix('batch_')}-{number}"
    answered = {
        "status_code": response["status_code"],
        "request_id": f"req_{name}",
        "body": body,
    }
    return _encoded(
        {"id": f"batch_req_{name}", "custom_id": custom_id, "response": answered, "error": None}
    )


def _invalid_line(batch: BatchRecord, number: int, custom_id: str) -> bytes:
    stem = batch.id.removeprefix("batch_")
    message = (
        f"row {number} of file-{stem}-output is not a response: its worker wrote something else;"
        " send the request again"
    )
    return _encoded(
        {
            "id": f"batch_req_{stem}-{number}",
            "custom_id": custom_id,
            "response": None,
            "error": {"code": "invalid_response", "message": message},
        }
    )


def _wrong_line(batch: BatchRecord, wrong: ErrorLine) -> bytes:
    name = f"{batch.id.removeprefix('batch_')}-line-{wrong.number}"
    response = {"status_code": wrong.status, "request_id": f"req_{name}", "body": wrong.body}
    return _encoded(
        {
            "id": f"batch_req_{name}",
            "custom_id": wrong.custom_id,
            "response": response,
            "error": None,
            "line": wrong.number,
        }
    )


def _unsent_line(batch: BatchRecord, number: int, custom_id: str, status: str) -> bytes:
    code, message = _UNSENT.get(status, _UNSENT_FAILED)
    return _encoded(
        {
            "id": f"batch_req_{batch.id.removeprefix('batch_')}-{number}",
            "custom_id": custom_id,
            "response": None,
            "error": {"code": code, "message": message},
        }
    )


def _encoded(line: dict[str, Any]) -> bytes:
    return orjson.dumps(line) + b"\n"
