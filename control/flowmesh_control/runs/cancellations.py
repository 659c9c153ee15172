"""Cancellations, made durable before the machine gets them, and read at every start.

So a run that was cancelled never continues, even if the leader that received the request dies. Used
by the API and the operator to cancel, and by a control plane that starts.
"""

import asyncio
from collections.abc import Awaitable, Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import msgspec

from flowmesh_api.v1.enums import Phase
from flowmesh_control.loop.clock import Clock
from flowmesh_control.records.keys import cancelled_key
from flowmesh_control.runs.recovery import RecoveredState
from flowmesh_core.accounting.ledger_lines import VerdictLine
from flowmesh_core.decoding import decode
from flowmesh_core.errors import ConditionFailedError
from flowmesh_core.machine.events import CancelRequested, Submitted
from flowmesh_store.ports import RecordStore

AT_ONCE = 16
_NO_REASON = "cancelled"

Withdrawn = Callable[[Sequence[str]], Awaitable[Mapping[str, str]]]
"""Given the uids of unfinished runs, returns which of them were cancelled, with the reason."""


class Cancellation(msgspec.Struct, frozen=True):
    """``runs/<uid>/cancelled``: the first request to cancel a run."""

    time_s: float
    reason: str


async def none_withdrawn(_: Sequence[str]) -> Mapping[str, str]:
    """Returns none: for a control plane whose runs are cancelled by request only."""
    return {}


@dataclass(frozen=True, slots=True)
class RunCanceller:
    """Cancels runs.

    Attributes:
        waiting: runs that cannot continue with the versions that they are pinned to.
        forget: prevents later submissions from joining a run.
        cancel_waiting: ends a run of ``waiting``.
        post_and_wait: posts an event to the machine and waits until it was applied.
    """

    records: RecordStore
    clock: Clock
    waiting: Container[str]
    forget: Callable[[str], None]
    cancel_waiting: Callable[[str, str], Awaitable[object]]
    post_and_wait: Callable[[CancelRequested], Awaitable[None]]

    async def cancel(self, uid: str, reason: str) -> None:
        """Cancels a run; the request is durable before the machine gets it.

        Args:
            uid: of a run that has not ended.
            reason: shown to the user.

        Raises:
            StoreError: the request could not be written. The run is cancelled, but it would
                continue if the control plane died before the run's end is written; try again.
        """
        self.forget(uid)
        record = msgspec.json.encode(Cancellation(self.clock(), reason))
        try:
            await self._write(cancelled_key(uid), record)
        finally:
            if uid in self.waiting:
                await self.cancel_waiting(uid, reason)
            else:
                await self.post_and_wait(CancelRequested(uid, reason))

    async def _write(self, key: str, data: bytes) -> None:
        """Writes the first request; one that the control plane did not write is replaced."""
        try:
            await self.records.write(key, data)
        except ConditionFailedError:
            found = await self.records.read(key)
            if found is not None and found.is_foreign:
                with suppress(ConditionFailedError):  # it was cancelled meanwhile
                    await self.records.write(key, data, if_match=found.etag)


async def find_cancelled(
    records: RecordStore, recovered: RecoveredState, withdrawn: Withdrawn
) -> dict[str, str]:
    """Returns which of the unfinished runs were cancelled, with the reason.

    Args:
        records: of the store.
        recovered: the unfinished runs.
        withdrawn: names runs that were cancelled while no control plane ran.
    """
    uids = [*(run.uid for run in recovered.submitted), *recovered.waiting]
    if not uids:
        return {}
    found = dict(await withdrawn(uids))
    for start in range(0, len(uids), AT_ONCE):
        some = uids[start : start + AT_ONCE]
        reasons = await asyncio.gather(*(_stored_reason(records, uid) for uid in some))
        found |= {uid: reason for uid, reason in zip(some, reasons, strict=True) if reason}
    for run in recovered.submitted:
        if run.uid not in found and (reason := _verdict_reason(run)):
            found[run.uid] = reason
    return found


async def _stored_reason(records: RecordStore, uid: str) -> str:
    record = await records.read(cancelled_key(uid))
    if record is None or record.is_foreign:
        return ""
    try:
        return decode(_decoder, record.data).reason or _NO_REASON
    except msgspec.DecodeError:  # that the record exists is enough
        return _NO_REASON


def _verdict_reason(run: Submitted) -> str:
    """Returns the reason of a cancellation that is in the ledger, while ``final`` is missing."""
    for line in run.restored:
        if isinstance(line, VerdictLine) and line.phase == Phase.CANCELLED:
            return line.message or _NO_REASON
    return ""


_decoder = msgspec.json.Decoder(Cancellation)
