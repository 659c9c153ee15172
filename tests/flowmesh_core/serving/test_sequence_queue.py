"""Which sequences of an engine run: requests first, rows in what they leave."""

import os
import random

import pytest

from flowmesh_core.serving.queue.sequence_queue import SequenceQueue


def queue_with(limit: int) -> SequenceQueue:
    queue = SequenceQueue()
    queue.limit = limit
    return queue


def test_everything_begins_without_a_limit() -> None:
    queue = queue_with(0)
    for number in range(100):
        queue.add_row(f"row {number}", 0)
    queue.add_request("request", 8)
    assert len(queue.advance().begin) == 101
    assert queue.running == 108


def test_rows_fill_the_limit_and_a_request_takes_the_place_of_the_newest() -> None:
    queue = queue_with(3)
    for name in "abcd":
        queue.add_row(name, 0)
    assert queue.advance() == (["a", "b", "c"], [])
    queue.add_request("request", 1)
    assert queue.advance() == (["request"], ["c"])
    assert queue.running == 3
    queue.remove("request")
    assert queue.advance() == (["c"], [])


def test_a_request_waits_while_requests_have_all_places() -> None:
    queue = queue_with(2)
    for name in ("first", "second", "third"):
        queue.add_request(name, 1)
    queue.add_row("row", 0)
    assert queue.advance() == (["first", "second"], [])
    queue.remove("first")
    assert queue.advance() == (["third"], [])
    queue.remove("second")
    assert queue.advance() == (["row"], [])


def test_a_request_of_several_sequences_needs_room_for_all_and_runs_alone_where_it_has_more() -> (
    None
):
    queue = queue_with(4)
    queue.add_request("one", 1)
    queue.add_request("eight", 8)
    assert queue.advance().begin == ["one"]
    queue.remove("one")
    assert queue.advance().begin == ["eight"]


def test_rows_of_a_higher_priority_begin_first() -> None:
    queue = queue_with(1)
    for name, priority in (("low", 0), ("high", 5), ("high too", 5)):
        queue.add_row(name, priority)
    assert [_take_one(queue) for _ in range(3)] == ["high", "high too", "low"]


def _take_one(queue: SequenceQueue) -> str:
    (name,) = queue.advance().begin
    queue.remove(name)
    return name


def test_a_lower_limit_stops_nothing_and_lets_nothing_begin() -> None:
    queue = queue_with(4)
    for name in "abcdef":
        queue.add_row(name, 0)
    queue.advance()
    queue.limit = 2
    queue.remove("a")
    assert queue.advance() == ([], [])
    queue.add_request("request", 1)
    assert queue.advance() == (["request"], ["d", "c"])


@pytest.mark.parametrize("limit", [1, 3, 8])
def test_the_limit_holds_no_request_waits_for_a_row_and_no_room_stays_empty(limit: int) -> None:
    seed = int.from_bytes(os.urandom(4))
    print(f"seed {seed}")  # noqa: T201 - shown where the test fails
    dice, queue = random.Random(seed), queue_with(limit)
    waiting: set[str] = set()
    running: dict[str, int] = {}
    for number in range(3000):
        match dice.randrange(3):
            case 0:
                queue.add_request(f"q{number}", size := dice.choice((1, 1, 1, 2, 8)))
                waiting.add(f"q{number}/{size}")
            case 1:
                queue.add_row(f"r{number}", dice.randrange(3))
                waiting.add(f"r{number}/1")
            case _ if running:
                name = dice.choice(sorted(running))
                del running[name]
                queue.remove(name.partition("/")[0])
        turn = queue.advance()
        by_name = {one.partition("/")[0]: one for one in waiting | running.keys()}
        for name in turn.stop:
            assert name.startswith("r")
            waiting.add(by_name[name])
            del running[by_name[name]]
        for name in turn.begin:
            waiting.discard(by_name[name])
            running[by_name[name]] = int(by_name[name].partition("/")[2])
        assert sum(running.values()) <= limit or len(running) == 1
        rows = [name for name in running if name.startswith("r")]
        requests = [name for name in waiting if name.startswith("q")]
        assert not (rows and requests and sum(running.values()) == len(rows))
        if not requests and any(name.startswith("r") for name in waiting):
            assert sum(running.values()) >= limit
    assert queue.running == sum(running.values())
