"""Sends one call for each row of an action, with limited concurrency.

All calls are rendered before the first is sent, so that a row that cannot be rendered fails its
action before any server was called.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from blake3 import blake3

from flowmesh_core.errors import AttemptError, Failure, FailureKind
from flowmesh_worker.engine_api import Progress, Work
from flowmesh_worker.engines.egress.urls import origin, redacted
from flowmesh_worker.engines.http.call import Call, CallError, HttpResponse
from flowmesh_worker.engines.http.client import HttpClient
from flowmesh_worker.engines.http.retrying import BUSY
from flowmesh_worker.engines.row_gather import all_or_none

STATUS, ERROR = "http_status", "http_error"
"""The columns with the result of a row's call."""

_KEY_TAG = b"flowmesh/idempotency-key/1\0"
_KEY_BYTES = 16
_OK = range(200, 300)
_DETAIL_CHARS = 500
Cells = dict[str, Any]
Read = Callable[[HttpResponse], Mapping[str, Any]]
"""Turns a successful answer into a row's cells; raises :class:`CallError` if it cannot."""


def idempotency_key(action_id: str, row: int | str) -> str:
    """Returns the idempotency key of a row's call: the same in every try and every attempt.

    Args:
        action_id: identifies the engine, its parameters, the chunk's rows, and the run if results
            are not shared between runs.
        row: the row's number in the chunk, from 1 (equal rows are separate calls), or another
            name of the call inside its action.
    """
    return blake3(_KEY_TAG + f"{action_id}\0{row}".encode()).hexdigest(_KEY_BYTES)


class RowCalls:
    """Sends the calls of an engine instance; several actions share the limits on concurrency."""

    def __init__(self, client: HttpClient) -> None:
        self._client = client
        self._gates: dict[tuple[str, int], asyncio.Semaphore] = {}

    async def run(
        self, work: Work, calls: Sequence[Call], read: Read, blank: Cells, progress: Progress
    ) -> list[Cells]:
        """Sends all calls; returns the new cells of every row, in order.

        Args:
            work: has the parameters ``maxConcurrency`` and ``onError``.
            calls: one for each row.
            read: turns a successful answer into cells.
            blank: the cells of a row without an answer.
            progress: reports the rows done.

        Raises:
            AttemptError: a call failed and ``onError`` is ``fail``; the other calls are cancelled.
        """
        at_once, record = int(work.params["maxConcurrency"]), work.params["onError"] == "record"
        done = 0

        async def one(number: int, call: Call) -> Cells:
            nonlocal done
            async with self._gate(call, at_once):
                try:
                    answer = await self._client.call(call)
                    cells = {**blank, **_read(call, answer, read), STATUS: answer.status}
                except CallError as error:
                    if not record:
                        raise _failed(number, error) from None
                    cells = {**blank, STATUS: error.status or None, ERROR: _text(error)}
            done += 1
            progress(done, len(calls), "rows")
            return cells

        return await all_or_none(one(n, call) for n, call in enumerate(calls, 1))

    def _gate(self, call: Call, at_once: int) -> asyncio.Semaphore:
        """Returns the semaphore of a server and limit, shared by all actions."""
        return self._gates.setdefault((origin(call.url), at_once), asyncio.Semaphore(at_once))


def _read(call: Call, answer: HttpResponse, read: Read) -> Mapping[str, Any]:
    if answer.status not in _OK:
        raise CallError(
            FailureKind.ENGINE if answer.status in BUSY else FailureKind.BAD_INPUT,
            f"{call.method} {redacted(call.url)} answers with HTTP status {answer.status}",
            "see the server's answer above",
            status=answer.status,
            retry_after_s=answer.retry_after_s,
            detail=answer.text[:_DETAIL_CHARS],
        )
    try:
        return read(answer)
    except CallError as error:
        error.status = answer.status
        error.detail = error.detail or answer.text[:_DETAIL_CHARS]
        raise


def _text(error: CallError) -> str:
    return f"{error.message}: {error.detail}" if error.detail else error.message


def _failed(number: int, error: CallError) -> AttemptError:
    return AttemptError(
        Failure(
            error.kind,
            f"row {number} of this chunk: {error.message}",
            error.remedy or "set with.onError: record to continue without such rows",
            error.detail,
            error.retry_after_s,
        )
    )
