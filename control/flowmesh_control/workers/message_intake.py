"""Validates workers' messages; the machine and the telemetry see nothing else of them.

An item that is malformed, or of an attempt that was not assigned to this worker, is dropped and
counted; the rest of the message is used. Attempt tokens are verified and removed here. The gateway
has one :class:`MessageIntake` per connection.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Generic, TypeVar

import msgspec

from flowmesh_control.workers.given_attempts import GivenAttempts
from flowmesh_core.errors import FailureKind
from flowmesh_core.protocol.checks import MessageProblem
from flowmesh_core.protocol.messages import (
    AttemptEnd,
    AttemptProgress,
    Checkpoint,
    FailureReport,
    Hello,
    LogLine,
    ServingReplicaState,
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
    of_instances,
    of_line,
    of_metrics,
    of_progress,
    of_replicas,
    of_usage,
)
from flowmesh_core.units import Digest

LINE_CHARS = 8192
LOG_CHARS = 65_536
FAILURE_CHARS = 16_384
"""Longer texts from users' code are truncated; the message does not count as malformed."""
DETAIL_CHARS = 65_536
STORE_PROBLEM_CHARS = 500
DESCRIBED = 10
"""Dropped items of one message that are described in the log."""
CALLED_S = 1e-6
"""Running time of an attempt that ran but whose reported time is not credible."""
CLOCKS_DIFFER_S = 5.0
"""How much longer than since its assignment an attempt may say that it ran."""
_REMEDY = "use a worker of the control plane's release; the control plane's log names the field"

_Message = TypeVar("_Message", Hello, Sync)
_Item = TypeVar("_Item")


class DropReason(StrEnum):
    """Why a part of a worker's message was dropped."""

    ATTEMPT_ID = "attempt-id"
    """The attempt was not assigned to this worker."""
    REPLICA_ID = "replica-id"
    """The replica of a service was not given to this worker."""
    MALFORMED = "malformed"
    """A value does not conform to the protocol."""
    TOO_MANY = "too-many"
    """The message has more items than the protocol allows."""
    TOO_LARGE = "too-large"
    """The message has more bytes or values than the protocol allows, and was not decoded."""
    UNREADABLE = "unreadable"
    """The message cannot be decoded, or is not the expected one."""


class Dropped(msgspec.Struct, frozen=True, gc=False):
    """A dropped part of a message."""

    reason: DropReason
    problem: MessageProblem


class DroppedItems:
    """The dropped items of one message: all are counted, the first few are described.

    A message may name 200,000 attempts that were never assigned; describing each would cost more
    than the message itself.

    Attributes:
        counts: by reason.
        first: at most ``DESCRIBED``.
    """

    def __init__(self) -> None:
        self.counts: Counter[DropReason] = Counter()
        self.first: list[Dropped] = []

    def add(self, reason: DropReason, problem: MessageProblem) -> None:
        """Counts an item."""
        self.counts[reason] += 1
        if len(self.first) < DESCRIBED:
            self.first.append(Dropped(reason, problem))

    def __len__(self) -> int:
        """Returns the number of dropped items."""
        return self.counts.total()


class CheckedMessage(msgspec.Struct, Generic[_Message], frozen=True):
    """A validated message.

    Attributes:
        message: without the dropped items.
        dropped: the items that were dropped.
        unknown_ends: ids of dropped ends whose attempts were not assigned to the worker. They
            are acknowledged, because an honest worker would otherwise repeat them for ever.
        generations: of the ended attempts, and of those in a full state: what they were made for.
    """

    message: _Message
    dropped: DroppedItems
    unknown_ends: Sequence[str] = ()
    generations: Mapping[str, int] = {}


class MessageIntake:
    """Validates the messages of one connection."""

    def __init__(self, given: GivenAttempts) -> None:
        self._given = given
        self._dropped = DroppedItems()
        self._unknown_ends: list[str] = []

    def hello(self, hello: Hello) -> CheckedMessage[Hello]:
        """Returns a Hello without malformed items; its own fields are valid (``of_hello``).

        An attempt with a valid id and malformed progress stays: without it, the worker would be
        told to stop the attempt.
        """
        checked = msgspec.structs.replace(
            hello,
            attempts=self._progress("attempts", hello.attempts, keep=True),
            ended=self._ends(hello.ended),
            checkpoints=self._checkpoints(hello.checkpoints),
            replicas=hello.replicas and self._replicas(hello.replicas),
            store_problem=(hello.store_problem or "")[:STORE_PROBLEM_CHARS] or msgspec.UNSET,
        )
        return self._checked(checked)

    def sync(self, sync: Sync) -> CheckedMessage[Sync]:
        """Returns a Sync without malformed items."""
        instances, components, metrics = sync.instances, sync.components, sync.metrics
        if instances and self._is_malformed(of_instances(instances)):
            instances = None
        if components and self._is_malformed(of_components(components)):
            components = None
        replicas = sync.replicas
        if replicas and self._is_malformed(of_replicas(replicas)):
            replicas = None
        if replicas:
            replicas = self._replicas(replicas)
        if metrics and self._is_malformed(of_metrics(metrics)):
            metrics = {}
        checked = Sync(
            seq=sync.seq,
            progress=self._progress("progress", sync.progress) if sync.progress else (),
            ended=self._ends(sync.ended) if sync.ended else (),
            instances=instances,
            components=components,
            replicas=replicas,
            logs=self._lines(sync.logs) if sync.logs else (),
            metrics=metrics,
            draining=sync.draining,
            store_problem=sync.store_problem[:STORE_PROBLEM_CHARS],
            goodbye=sync.goodbye,
            checkpoints=self._checkpoints(sync.checkpoints) if sync.checkpoints else (),
        )
        return self._checked(checked)

    def _checked(self, message: _Message) -> CheckedMessage[_Message]:
        generations = self._generations(message)
        checked = CheckedMessage(message, self._dropped, self._unknown_ends, generations)
        if self._dropped:
            self._dropped, self._unknown_ends = DroppedItems(), []
        return checked

    def _progress(
        self, place: str, reports: Sequence[AttemptProgress], *, keep: bool = False
    ) -> tuple[AttemptProgress, ...]:
        found = []
        for n, p in enumerate(self._limited(place, reports)):
            attempt_id = p.attempt_id
            if not self._admits(place, n, attempt_id, p.token):
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
        for n, report in enumerate(self._limited("ended", ends)):
            if not self._admits("ended", n, report.attempt_id, report.token):
                self._unknown_ends.append(report.attempt_id)
                continue
            end = _shortened(report)
            problem = of_end(end) or self._too_long(end)
            if problem is not None:
                self._drop(DropReason.MALFORMED, f"ended[{n}]", problem)
                end = _failed(end, problem)
            found.append(end)
        return tuple(found)

    def _checkpoints(self, reports: Sequence[Checkpoint]) -> tuple[Checkpoint, ...]:
        found = []
        for n, c in enumerate(self._limited("checkpoints", reports)):
            attempt_id = c.attempt_id
            if not self._admits("checkpoints", n, attempt_id, c.token):
                continue
            problem = of_checkpoint(c)
            if problem is None:
                found.append(Checkpoint(attempt_id, c.digest, c.done, c.size_bytes, c.spoiled))
            else:
                self._drop(DropReason.MALFORMED, f"checkpoints[{n}]", problem)
        return tuple(found)

    def _replicas(self, states: Sequence[ServingReplicaState]) -> tuple[ServingReplicaState, ...]:
        """Returns the states of replicas that the worker was given, without their tokens."""
        found = []
        for n, state in enumerate(states):
            if self._given.admits_replica(state.replica_id, state.token):
                found.append(msgspec.structs.replace(state, token=""))
                continue
            text = f"{state.replica_id[:120]!r} was not given to it"
            self._drop(DropReason.REPLICA_ID, f"replicas[{n}]", MessageProblem("replica_id", text))
        return tuple(found)

    def _lines(self, lines: Sequence[LogLine]) -> tuple[LogLine, ...]:
        found = []
        for n, line in enumerate(self._limited("logs", lines, LINES_MAX)):
            if not self._admits("logs", n, line.attempt_id, ""):
                continue
            problem = of_line(line)
            if problem is None:
                found.append(LogLine(line.attempt_id, line.time_s, line.text[:LINE_CHARS]))
            else:
                self._drop(DropReason.MALFORMED, f"logs[{n}]", problem)
        return tuple(found)

    def _admits(self, place: str, n: int, attempt_id: str, token: str) -> bool:
        if self._given.admits(attempt_id, token):
            return True
        problem = MessageProblem("attempt_id", f"{attempt_id[:120]!r} was not assigned to it")
        self._drop(DropReason.ATTEMPT_ID, f"{place}[{n}]", problem)
        return False

    def _too_long(self, end: AttemptEnd) -> MessageProblem | None:
        """Returns a problem if an attempt ran longer than the time since it was assigned."""
        said_s = end.usage.run_s + end.usage.load_s
        if said_s <= CLOCKS_DIFFER_S:
            return None
        passed_s = self._given.passed_s(end.attempt_id)
        if said_s <= passed_s + CLOCKS_DIFFER_S:
            return None
        text = f"{said_s:g} s with loading, and it was assigned {passed_s:.1f} s ago"
        return MessageProblem("usage.run_s", text)

    def _generations(self, message: Hello | Sync) -> dict[str, int]:
        """Returns the generations of the attempts that ended, and of those in a full state."""
        generation = self._given.generation
        found = {end.attempt_id: generation(end.attempt_id) for end in message.ended}
        if isinstance(message, Hello):
            found.update((p.attempt_id, generation(p.attempt_id)) for p in message.attempts)
        return found

    def _limited(
        self, place: str, items: Sequence[_Item], most: int = ITEMS_MAX
    ) -> Sequence[_Item]:
        if len(items) <= most:
            return items
        problem = MessageProblem(place, f"{len(items)} of at most {most}")
        self._dropped.add(DropReason.TOO_MANY, problem)
        return items[:most]

    def _is_malformed(self, problem: MessageProblem | None) -> bool:
        if problem is not None:
            self._dropped.add(DropReason.MALFORMED, problem)
        return problem is not None

    def _drop(self, reason: DropReason, place: str, problem: MessageProblem) -> None:
        self._dropped.add(reason, problem.within(place))


def _shortened(end: AttemptEnd) -> AttemptEnd:
    """Returns an end with truncated texts and without its token."""
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
        end.attempt_id,
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
    """Returns a failure in place of an end that is malformed.

    The attempt counts as one that ran, unless the report credibly says that it did not: a step that
    must not be called twice must then not be repeated.
    """
    usage = end.usage if of_usage(end.usage) is None else Usage(run_s=CALLED_S)
    if end.failure is None and not usage.run_s:
        usage = Usage(run_s=CALLED_S)
    detail = f" (reported: {end.failure.message})" if end.failure is not None else ""
    return AttemptEnd(
        end.attempt_id,
        Digest(end.attempt_id.split("/")[1]),
        failure=FailureReport(
            kind=FailureKind.ENGINE,
            message=f"the worker's report of the attempt is malformed: {problem}{detail}",
            remedy=_REMEDY,
        ),
        usage=usage,
        log=end.log,
    )
