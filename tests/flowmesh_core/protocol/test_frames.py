"""Workers' messages within the limits, whatever a worker has to report."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowmesh_core.protocol import frames
from flowmesh_core.protocol.frames import (
    ENDS_MAX,
    MESSAGE_BYTES_MAX,
    VALUES_MAX,
    MessageTooLargeError,
    fits,
    hello_frame,
    sync_frames,
    values_in,
)
from flowmesh_core.protocol.messages import (
    AttemptEnd,
    AttemptProgress,
    Checkpoint,
    Hello,
    LogLine,
    Sync,
    WorkerShape,
    decode_worker,
    encode,
)
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.units import Digest

D = Digest("0" * 64)
SHAPE = WorkerShape("local-1", "local", "cpu", 1, 1, 1, 1, {})
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats() | st.binary()
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)  # fmt: skip


def ends(count: int, **changes: Any) -> tuple[AttemptEnd, ...]:
    return tuple(AttemptEnd(f"ns/{D}/1-{n}", D, token=f"t{n}", **changes) for n in range(count))


def synced(sync: Sync) -> list[Sync]:
    found = []
    for frame in sync_frames(sync):
        assert fits(frame)
        message = decode_worker(frame)
        assert isinstance(message, Sync)
        found.append(message)
    return found


def values(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(1 + values(v) for v in value.values())
    return 1 + (sum(map(values, value)) if isinstance(value, list) else 0)


@given(JSON)
def test_values_are_counted_as_they_would_be_decoded(value: Any) -> None:
    data = msgspec.msgpack.encode(value)
    assert values_in(data, len(data)) == values(value)


@given(st.binary(), st.integers(0, 20))
def test_counting_ends_whatever_the_bytes_are_and_stops_when_there_are_too_many(
    data: bytes, most: int
) -> None:
    assert values_in(data, most) <= min(len(data), most + 1)


def test_a_usual_report_is_one_unchanged_message() -> None:
    sync = Sync(5, ended=ends(ENDS_MAX), draining=True, goodbye=True)
    assert sync_frames(sync) == [encode(sync)]


def test_many_ends_are_split_in_order_and_the_goodbye_comes_last() -> None:
    sync = Sync(
        5,
        progress=(AttemptProgress("a", "running"),),
        ended=ends(2 * ENDS_MAX + 1),
        checkpoints=(Checkpoint("a", D),),
        logs=(LogLine("a", 1.0, "text"),),
        draining=True,
        goodbye=True,
    )
    found = synced(sync)
    assert [m.seq for m in found] == [5, 6, 7, 8]
    assert [len(m.ended) for m in found] == [0, ENDS_MAX, ENDS_MAX, 1]
    assert sum((m.ended for m in found), ()) == sync.ended
    assert [m.goodbye for m in found] == [False, False, False, True]
    assert all(m.draining for m in found)
    assert (found[0].progress, found[0].checkpoints) == (sync.progress, sync.checkpoints)
    assert not any(m.progress or m.logs or m.checkpoints for m in found[1:])


def test_ends_that_are_large_together_are_split_by_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "COUNT_FROM_BYTES", 1000)
    monkeypatch.setattr(frames, "MESSAGE_BYTES_MAX", 10_000)
    sync = Sync(1, ended=ends(20, log="x" * 3000))
    found = synced(sync)
    assert sum((m.ended for m in found), ()) == sync.ended
    assert all(len(m.ended) <= 3 for m in found)
    assert [m.seq for m in found] == list(range(1, len(found) + 1))


@pytest.mark.parametrize(
    "value", [{"a": "x" * (MESSAGE_BYTES_MAX + 1)}, {"a": [0] * max(VALUES_MAX, 1 << 20)}]
)
def test_an_end_too_large_for_a_message_fails_with_a_remedy(value: dict[str, Any]) -> None:
    before, large, after = ends(3)
    metrics = Artifact("metrics", D, D, value=value)
    large = msgspec.structs.replace(large, outputs={"metrics": metrics}, log="a line")
    found = sum((m.ended for m in synced(Sync(1, ended=(before, large, after)))), ())
    assert (found[0], found[2]) == (before, after)
    assert (found[1].attempt_id, found[1].outputs) == (large.attempt_id, {})
    failure = found[1].failure
    assert failure is not None
    assert failure.kind == "engine"
    assert f"{MESSAGE_BYTES_MAX:,}" in failure.message
    assert "make the step's outputs smaller" in failure.remedy


def test_a_full_state_names_attempts_whose_ends_follow_as_storing() -> None:
    running = (AttemptProgress("a", "running", token="t"),)
    all_ends = ends(ENDS_MAX + 2)
    hello = Hello(2, 0, "i", 1.0, SHAPE, attempts=running, ended=all_ends)
    data, rest = hello_frame(hello)
    sent = decode_worker(data)
    assert isinstance(sent, Hello)
    assert (sent.ended, rest) == (all_ends[:ENDS_MAX], all_ends[ENDS_MAX:])
    storing = tuple(AttemptProgress(e.attempt_id, "storing", token=e.token) for e in rest)
    assert sent.attempts == running + storing


def test_a_full_state_too_large_for_a_message_is_an_error_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(frames, "COUNT_FROM_BYTES", 1000)
    monkeypatch.setattr(frames, "MESSAGE_BYTES_MAX", 10_000)
    large = ends(5, log="x" * 8000)
    data, rest = hello_frame(Hello(2, 0, "i", 1.0, SHAPE, ended=large))
    assert fits(data)
    assert len(rest) == 4
    attempts = tuple(AttemptProgress("a" * 1000, "running") for _ in range(20))
    with pytest.raises(MessageTooLargeError, match="restart the worker"):
        hello_frame(Hello(2, 0, "i", 1.0, SHAPE, attempts=attempts))
