"""Wishes that a run stops: written before the machine hears of them, and read at every start.

A run that somebody cancelled is never taken up again, whatever became of the leader that was told.
Used by the API and the operator to cancel, and by a control plane that starts.
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
"""Told the uids of unfinished runs, says which of them nobody wants any more, and why."""


class Cancellation(msgspec.Struct, frozen=True):
    """``runs/<uid>/cancelled``: the first wish that a run stops."""

    time_s: float
    reason: str


async def none_withdrawn(_: Sequence[str]) -> Mapping[str, str]:
    """Where runs are cancelled by request alone."""
    return {}


@dataclass(frozen=True, slots=True)
class RunCanceller:
    """Stops runs.

    Attributes:
        waiting: runs that cannot be taken up as they are pinned.
        forget: lets no later submission join a run.
        cancel_waiting: ends a run of ``waiting``.
        ask: hands an event to the machine.
    """

    records: RecordStore
    clock: Clock
    waiting: Container[str]
    forget: Callable[[str], None]
    cancel_waiting: Callable[[str, str], Awaitable[object]]
    ask: Callable[[CancelRequested], Awaitable[None]]

    async def cancel(self, uid: str, reason: str) -> None:
        """Stops a run: its wish is durable before anything else happens.

        Args:
            uid: of a run that has not ended.
            reason: for people.

        Raises:
            StoreError: the wish could not be written. The run stops all the same, but would be
                taken up again if the control plane died before its end is written; call it again.
        """
        self.forget(uid)
        record = msgspec.json.encode(Cancellation(self.clock(), reason))
        try:
            with suppress(ConditionFailedError):  # it was cancelled before
                await self.records.write(cancelled_key(uid), record)
        finally:
            if uid in self.waiting:
                await self.cancel_waiting(uid, reason)
            else:
                await self.ask(CancelRequested(uid, reason))


async def find_cancelled(
    records: RecordStore, recovered: RecoveredState, withdrawn: Withdrawn
) -> dict[str, str]:
    """Which of the unfinished runs are only to end, and why.

    Args:
        records: of the store.
        recovered: the unfinished runs.
        withdrawn: knows what was cancelled while no control plane ran.
    """
    uids = [*(run.uid for run in recovered.submitted), *recovered.waiting]
    if not uids:
        return {}
    found = dict(await withdrawn(uids))
    for start in range(0, len(uids), AT_ONCE):
        some = uids[start : start + AT_ONCE]
        reasons = await asyncio.gather(*(_written(records, uid) for uid in some))
        found |= {uid: reason for uid, reason in zip(some, reasons, strict=True) if reason}
    for run in recovered.submitted:
        if run.uid not in found and (reason := _by_verdict(run)):
            found[run.uid] = reason
    return found


async def _written(records: RecordStore, uid: str) -> str:
    record = await records.read(cancelled_key(uid))
    if record is None:
        return ""
    try:
        return decode(_decoder, record.data).reason or _NO_REASON
    except msgspec.DecodeError:  # that it is there says enough
        return _NO_REASON


def _by_verdict(run: Submitted) -> str:
    """The reason of a verdict whose run was cut off before its end was written."""
    for line in run.restored:
        if isinstance(line, VerdictLine) and line.phase == Phase.CANCELLED:
            return line.message or _NO_REASON
    return ""


_decoder = msgspec.json.Decoder(Cancellation)
