"""What is taken in of a worker's message: the machine and the telemetry read nothing else.

An item that is malformed, or of an attempt that this worker was not given, is left out and counted;
the rest of the message counts. Attempt ids lose their MACs here (``wire_ids``). The gateway has one
:class:`MessageIntake` a connection.
"""

from collections import Counter
from collections.abc import Sequence
from enum import StrEnum
from typing import Generic, TypeVar

import msgspec

from flowmesh_core.errors import FailureKind
from flowmesh_core.protocol.checks import MessageProblem
from flowmesh_core.protocol.messages import (
    AttemptEnd,
    AttemptProgress,
    Checkpoint,
    FailureReport,
    Hello,
    LogLine,
    Sync,
)
from flowmesh_core.protocol.results import Usage
from flowmesh_core.protocol.validation import (
    ITEMS_MAX,
    LINES_MAX,
    PHASES,
    of_checkpoint,
    of_components,
    of_end,
    of_lanes,
    of_line,
    of_metrics,
    of_progress,
    of_usage,
)
from flowmesh_core.protocol.wire_ids import WireIds
from flowmesh_core.units import Digest

LINE_CHARS = 8192
LOG_CHARS = 65_536
FAILURE_CHARS = 16_384
"""What users' code makes longer is cut, and not held against the worker."""
DETAIL_CHARS = 65_536
DESCRIBED = 10
"""Of the items that one message lost, so many are described in the log."""
CALLED_S = 1e-6
"""Running time of an attempt that did run where its report of how long cannot be believed."""
_REMEDY = "use a worker of the control plane's release; the control plane's log names the field"

_Message = TypeVar("_Message", Hello, Sync)
_Item = TypeVar("_Item")


class DropReason(StrEnum):
    """Why a part of a worker's message was left out."""

    ATTEMPT_ID = "attempt-id"
    """The attempt was not given to this worker."""
    MALFORMED = "malformed"
    """A value is not as the protocol has it."""
    TOO_MANY = "too-many"
    """The message has more items than the protocol allows."""
    UNREADABLE = "unreadable"
    """The message cannot be decoded, or is not the one that was due."""


class Dropped(msgspec.Struct, frozen=True, gc=False):
    """A part of a message that was left out."""

    reason: DropReason
    problem: MessageProblem


class DroppedItems:
    """What was left out of one message: everything is counted, the first few are described.

    A message may name 200,000 attempts that nobody gave out; describing each would cost more than
    the message itself.

    Attributes:
        counts: by reason.
        first: at most ``DESCRIBED``.
    """

    def __init__(self) -> None:
        """Starts empty."""
        self.counts: Counter[DropReason] = Counter()
        self.first: list[Dropped] = []

    def add(self, reason: DropReason, problem: MessageProblem) -> None:
        """Counts one."""
        self.counts[reason] += 1
        if len(self.first) < DESCRIBED:
            self.first.append(Dropped(reason, problem))

    def __len__(self) -> int:
        """How many there are."""
        return self.counts.total()


class CheckedMessage(msgspec.Struct, Generic[_Message], frozen=True):
    """A message as it may be read.

    Attributes:
        dropped: what was left out of it.
        unknown_ends: ids, as the worker has them, of the ends among those that are of no attempt
            of its own: they are acknowledged, or an honest worker would repeat them for ever.
    """

    message: _Message
    dropped: DroppedItems
    unknown_ends: Sequence[str] = ()


class MessageIntake:
    """Reads the messages of one connection."""

    def __init__(self, ids: WireIds) -> None:
        """Makes the intake of the worker whose ids these are."""
        self._ids = ids
        self._dropped = DroppedItems()
        self._unknown_ends: list[str] = []

    def hello(self, hello: Hello) -> CheckedMessage[Hello]:
        """Returns what counts of a Hello whose own fields are in order (``of_hello``).

        A held attempt of which the rest is malformed stays held: the worker would stop it.
        """
        taken = msgspec.structs.replace(
            hello,
            token="",
            held=self._progress("held", hello.held, keep=True),
            ended=self._ends(hello.ended),
            checkpoints=self._checkpoints(hello.checkpoints),
        )
        return self._taken(taken)

    def sync(self, sync: Sync) -> CheckedMessage[Sync]:
        """Returns what counts of a Sync."""
        lanes, components, metrics = sync.lanes, sync.components, sync.metrics
        if lanes and self._wrong(of_lanes(lanes)):
            lanes = None
        if components and self._wrong(of_components(components)):
            components = None
        if metrics and self._wrong(of_metrics(metrics)):
            metrics = {}
        taken = Sync(
            seq=sync.seq,
            progress=self._progress("progress", sync.progress) if sync.progress else (),
            ended=self._ends(sync.ended) if sync.ended else (),
            lanes=lanes,
            components=components,
            logs=self._lines(sync.logs) if sync.logs else (),
            metrics=metrics,
            draining=sync.draining,
            goodbye=sync.goodbye,
            checkpoints=self._checkpoints(sync.checkpoints) if sync.checkpoints else (),
        )
        return self._taken(taken)

    def _taken(self, message: _Message) -> CheckedMessage[_Message]:
        taken = CheckedMessage(message, self._dropped, self._unknown_ends)
        if self._dropped:
            self._dropped, self._unknown_ends = DroppedItems(), []
        return taken

    def _progress(
        self, place: str, reports: Sequence[AttemptProgress], *, keep: bool = False
    ) -> tuple[AttemptProgress, ...]:
        found = []
        for n, p in enumerate(self._few(place, reports)):
            attempt_id = self._known(place, n, p.attempt_id)
            if attempt_id is None:
                continue
            problem = of_progress(p)
            if problem is None:
                found.append(AttemptProgress(attempt_id, p.phase, p.units, p.done, p.total, p.unit))
                continue
            self._drop(DropReason.MALFORMED, f"{place}[{n}]", problem)
            if keep:
                phase = p.phase if p.phase in PHASES else "queued"
                found.append(AttemptProgress(attempt_id, phase))
        return tuple(found)

    def _ends(self, ends: Sequence[AttemptEnd]) -> tuple[AttemptEnd, ...]:
        found = []
        for n, told in enumerate(self._few("ended", ends)):
            attempt_id = self._known("ended", n, told.attempt_id)
            if attempt_id is None:
                self._unknown_ends.append(told.attempt_id)
                continue
            end = _shortened(told, attempt_id)
            problem = of_end(end)
            if problem is not None:
                self._drop(DropReason.MALFORMED, f"ended[{n}]", problem)
                end = _failed(end, problem)
            found.append(end)
        return tuple(found)

    def _checkpoints(self, reports: Sequence[Checkpoint]) -> tuple[Checkpoint, ...]:
        found = []
        for n, c in enumerate(self._few("checkpoints", reports)):
            attempt_id = self._known("checkpoints", n, c.attempt_id)
            if attempt_id is None:
                continue
            problem = of_checkpoint(c)
            if problem is None:
                found.append(Checkpoint(attempt_id, c.digest, c.done, c.size_bytes, c.spoiled))
            else:
                self._drop(DropReason.MALFORMED, f"checkpoints[{n}]", problem)
        return tuple(found)

    def _lines(self, lines: Sequence[LogLine]) -> tuple[LogLine, ...]:
        found = []
        for n, line in enumerate(self._few("logs", lines, LINES_MAX)):
            attempt_id = self._known("logs", n, line.attempt_id)
            if attempt_id is None:
                continue
            problem = of_line(line)
            if problem is None:
                found.append(LogLine(attempt_id, line.time_s, line.text[:LINE_CHARS]))
            else:
                self._drop(DropReason.MALFORMED, f"logs[{n}]", problem)
        return tuple(found)

    def _known(self, place: str, n: int, wire_id: str) -> str | None:
        attempt_id = self._ids.bare(wire_id)
        if attempt_id is None:
            problem = MessageProblem("attempt_id", f"{wire_id[:120]!r} was not given to it")
            self._drop(DropReason.ATTEMPT_ID, f"{place}[{n}]", problem)
        return attempt_id

    def _few(self, place: str, items: Sequence[_Item], most: int = ITEMS_MAX) -> Sequence[_Item]:
        if len(items) <= most:
            return items
        problem = MessageProblem(place, f"{len(items)} of at most {most}")
        self._dropped.add(DropReason.TOO_MANY, problem)
        return items[:most]

    def _wrong(self, problem: MessageProblem | None) -> bool:
        if problem is not None:
            self._dropped.add(DropReason.MALFORMED, problem)
        return problem is not None

    def _drop(self, reason: DropReason, place: str, problem: MessageProblem) -> None:
        self._dropped.add(reason, problem.within(place))


def _shortened(end: AttemptEnd, attempt_id: str) -> AttemptEnd:
    """An end under the machine's id, with texts of bounded length."""
    failure = end.failure
    if failure is not None and (
        len(failure.message) > FAILURE_CHARS
        or len(failure.remedy) > FAILURE_CHARS
        or len(failure.detail) > DETAIL_CHARS
    ):
        failure = msgspec.structs.replace(
            failure,
            message=failure.message[:FAILURE_CHARS],
            remedy=failure.remedy[:FAILURE_CHARS],
            detail=failure.detail[-DETAIL_CHARS:],
        )
    return AttemptEnd(
        attempt_id,
        end.action_id,
        end.outputs,
        end.inline,
        failure,
        end.usage,
        end.libraries,
        end.started_s,
        end.ended_s,
        end.log[-LOG_CHARS:],
    )


def _failed(end: AttemptEnd, problem: MessageProblem) -> AttemptEnd:
    """The end of an attempt whose report cannot be used: it failed, and the action goes on.

    A step that must not be called twice must not be called again, so the attempt counts as one that
    ran wherever the report does not deny it credibly.
    """
    usage = end.usage if of_usage(end.usage) is None else Usage(run_s=CALLED_S)
    if end.failure is None and not usage.run_s:
        usage = Usage(run_s=CALLED_S)
    said = f" (it said: {end.failure.message})" if end.failure is not None else ""
    return AttemptEnd(
        end.attempt_id,
        Digest(end.attempt_id.split("/")[1]),
        failure=FailureReport(
            kind=FailureKind.ENGINE,
            message=f"the worker's report of the attempt is malformed: {problem}{said}",
            remedy=_REMEDY,
        ),
        usage=usage,
        log=end.log,
    )
