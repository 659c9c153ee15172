"""How much one worker may send in a time."""

from flowmesh_control.workers.receive_rate import (
    BYTES_PER_S,
    ITEMS_PER_S,
    WINDOW_S,
    ReceiveRate,
    items_of,
)
from flowmesh_core.protocol.messages import AttemptProgress, LogLine, Sync


def test_a_window_of_bytes_or_items_passes_at_once_and_more_must_wait() -> None:
    for size, items in ((BYTES_PER_S, 0), (0, ITEMS_PER_S)):
        rate = ReceiveRate()
        for _ in range(int(WINDOW_S)):
            assert rate.pause_s(100.0, size, items) == 0.0
        assert rate.pause_s(100.0, size, items) == 1.0
        assert rate.pause_s(101.0, size, items) == 1.0


def test_a_sender_at_the_rate_never_waits_and_one_that_waited_may_continue() -> None:
    rate = ReceiveRate()
    for second in range(1000):
        assert rate.pause_s(float(second), BYTES_PER_S, ITEMS_PER_S) == 0.0
    rate = ReceiveRate()
    assert rate.pause_s(0.0, 30 * BYTES_PER_S, 0) == 20.0
    assert rate.pause_s(20.0, 0, 0) == 0.0


def test_every_entry_of_a_message_is_an_item() -> None:
    sync = Sync(
        1,
        progress=(AttemptProgress("a", "running"),) * 2,
        logs=(LogLine("a", 1.0, "x"),),
        metrics={"a": 1.0},
    )
    assert items_of(sync) == 4
    assert items_of(Sync(1)) == 0
