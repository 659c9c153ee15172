"""What is taken in of a worker's message, and what becomes of the rest."""

import math
from typing import Any

import msgspec
from tests.flowmesh_control.given import given_attempts
from tests.flowmesh_control.workers.test_gateway import hello

from flowmesh_control.workers.message_intake import (
    CALLED_S,
    DESCRIBED,
    FAILURE_CHARS,
    LINE_CHARS,
    LOG_CHARS,
    CheckedMessage,
    DropReason,
    MessageIntake,
)
from flowmesh_core.protocol.messages import (
    AttemptEnd,
    AttemptProgress,
    FailureReport,
    LogLine,
    Sync,
)
from flowmesh_core.protocol.results import Usage
from flowmesh_core.protocol.validation import LINES_MAX
from flowmesh_core.units import Digest

D = Digest("a" * 64)
MINE = f"ns-team-a/{D}/1-1"
GIVEN = given_attempts()
TOKEN = GIVEN.give(MINE, 1, ("ns-team-a",))


def taken(**changes: Any) -> CheckedMessage[Sync]:
    return MessageIntake(GIVEN).sync(Sync(seq=1, **changes))


def test_items_of_an_assigned_attempt_are_accepted() -> None:
    found = taken(
        progress=(AttemptProgress(MINE, "running"),), logs=(LogLine(MINE, 1.0, "a line"),)
    )
    assert found.message.progress == (AttemptProgress(MINE, "running"),)
    assert found.message.logs == (LogLine(MINE, 1.0, "a line"),)
    assert not found.dropped


def test_a_malformed_item_is_dropped_and_the_others_count() -> None:
    found = taken(
        progress=(
            AttemptProgress(MINE, "running", done=math.nan),
            AttemptProgress("x", "running"),
            AttemptProgress(MINE, "storing"),
        )
    )
    assert found.message.progress == (AttemptProgress(MINE, "storing"),)
    assert [(d.reason, d.problem.field) for d in found.dropped.first] == [
        (DropReason.MALFORMED, "progress[0].done"),
        (DropReason.ATTEMPT_ID, "progress[1].attempt_id"),
    ]


def test_an_attempt_remains_even_if_its_progress_is_malformed() -> None:
    told = hello(
        attempts=(AttemptProgress(MINE, "running", done=math.inf), AttemptProgress(MINE, "?"))
    )
    found = MessageIntake(GIVEN).hello(told)
    assert found.message.attempts == (
        AttemptProgress(MINE, "running"),
        AttemptProgress(MINE, "queued"),
    )
    assert len(found.dropped) == 2


def test_overlong_texts_of_user_code_are_cut_without_a_protocol_violation() -> None:
    report = FailureReport("user-code", "m" * 10**6, "r" * 10**6, f"{'d' * 10**6} end")
    found = taken(
        ended=(AttemptEnd(MINE, D, failure=report, log="x" * 10**6 + "last"),),
        logs=(LogLine(MINE, 1.0, "y" * 10**6),),
    )
    assert not found.dropped
    [end], [line] = found.message.ended, found.message.logs
    assert end.failure is not None
    assert (len(end.failure.message), len(end.failure.remedy)) == (FAILURE_CHARS, FAILURE_CHARS)
    assert end.failure.detail.endswith(" end")
    assert (len(end.log), end.log[-4:]) == (LOG_CHARS, "last")
    assert len(line.text) == LINE_CHARS


def test_lines_beyond_the_limit_of_a_worker_are_dropped() -> None:
    found = taken(logs=(LogLine(MINE, 1.0, "a line"),) * (LINES_MAX + 5))
    assert len(found.message.logs) == LINES_MAX
    assert [d.reason for d in found.dropped.first] == [DropReason.TOO_MANY]


def test_of_many_dropped_items_all_are_counted_and_few_are_described() -> None:
    unknown = tuple(AttemptProgress(f"x{n}", "running") for n in range(60_000))
    found = MessageIntake(GIVEN).hello(hello(attempts=unknown))
    assert found.dropped.counts == {DropReason.ATTEMPT_ID: 60_000}
    assert len(found.dropped) == 60_000
    assert len(found.dropped.first) == DESCRIBED


def test_an_end_of_another_workers_attempt_is_returned_as_unknown() -> None:
    theirs = f"ns-team-a/{D}/1-2"
    token = given_attempts("w2").give(theirs, 1, ())
    found = taken(ended=(AttemptEnd(theirs, D, token=token),))
    assert found.message.ended == ()
    assert list(found.unknown_ends) == [theirs]


def test_a_token_admits_its_own_process_on_another_connection_and_names_the_generation() -> None:
    token = GIVEN.give(MINE, 7, ())
    end = AttemptEnd(MINE, D, failure=FailureReport("engine", "it failed"), token=token)
    for incarnation, admitted in (("i1", {MINE: 7}), ("i2", {})):
        later = MessageIntake(given_attempts(incarnation=incarnation))
        found = later.sync(Sync(seq=1, ended=(end,)))
        assert found.generations == admitted
        assert [e.token for e in found.message.ended] == [""] * len(admitted)


def test_an_attempt_that_reports_more_time_than_since_its_assignment_fails() -> None:
    now = [100.0]
    given = given_attempts(now=lambda: now[0])
    token = given.give(MINE, 1, ())
    now[0] += 10.0
    again = given_attempts(now=lambda: now[0])
    for connection in (given, again):
        for usage, kind in (
            (Usage(run_s=9.0, load_s=5.9), ""),
            (Usage(run_s=9.0, load_s=6.1), "engine"),
        ):
            end = AttemptEnd(MINE, D, usage=usage, token=token)
            [read] = MessageIntake(connection).sync(Sync(seq=1, ended=(end,))).message.ended
            assert (read.failure.kind if read.failure else "") == kind


def test_a_call_that_may_have_been_made_is_never_treated_as_not_made() -> None:
    """A step that must not be called twice is told by its running time (``remedies``)."""
    failure = FailureReport("odd", "it failed")
    for end, run_s in (
        (AttemptEnd(MINE, D, usage=Usage(run_s=math.nan)), CALLED_S),
        (AttemptEnd(MINE, D, started_s=-1.0), CALLED_S),
        (AttemptEnd(MINE, D, started_s=-1.0, usage=Usage(run_s=3.0)), 3.0),
        (AttemptEnd(MINE, D, failure=failure, usage=Usage(run_s=2.0)), 2.0),
        (AttemptEnd(MINE, D, failure=failure), 0.0),
    ):
        [read] = taken(ended=(end,)).message.ended
        assert read.failure is not None
        assert read.failure.kind == "engine"
        assert read.usage.run_s == run_s


def test_a_malformed_part_is_treated_as_unchanged() -> None:
    found = taken(metrics={"stored_bytes": math.nan}, draining=True)
    assert found.message == Sync(seq=1, draining=True)
    assert [d.problem.field for d in found.dropped.first] == ["metrics['stored_bytes']"]


def test_a_message_without_attempts_is_not_changed() -> None:
    told = Sync(seq=7, metrics={"stored_bytes": 1.0}, goodbye=True, instances=(), components=())
    assert MessageIntake(GIVEN).sync(told).message == told
    assert msgspec.structs.asdict(
        MessageIntake(GIVEN).sync(told).message
    ) == msgspec.structs.asdict(told)
