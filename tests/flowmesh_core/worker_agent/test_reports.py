"""Reports are levels: a change is sent once, an end until it is acknowledged."""

import math
from typing import Any

import pytest

from flowmesh_core.protocol.messages import AttemptEnd, AttemptProgress, Checkpoint, Sync
from flowmesh_core.units import Digest
from flowmesh_core.worker_agent.instructions import SendReport
from flowmesh_core.worker_agent.outbox import Outbox
from flowmesh_core.worker_agent.reports import (
    PROGRESS_DELAY_S,
    REPEAT_ENDS_EVERY_S,
    Reports,
    figure,
)


def reports(now_s: float = 100.0) -> tuple[Reports, Outbox]:
    out = Outbox()
    out.now_s = now_s
    made = Reports(out)
    made.all_reported(now_s)
    return made, out


def sync(made: Reports, now_s: float = 100.0) -> Sync:
    def nothing() -> tuple[Any, ...]:
        return ()

    return made.next_sync(1, now_s, nothing, nothing, nothing)


def test_progress_alone_is_delayed_to_be_sent_with_other_changes() -> None:
    made, out = reports()
    made.take("a", "")
    made.take("b", "")
    made.report(AttemptProgress("a", "running"))
    made.report(AttemptProgress("b", "running"))
    assert out.take() == [SendReport(100.0 + PROGRESS_DELAY_S)]
    made.end(AttemptEnd("a", Digest("x")))
    assert out.take() == [SendReport(100.0)]
    sent = sync(made)
    assert ([p.attempt_id for p in sent.progress], len(sent.ended)) == (["b"], 1)
    made.report(AttemptProgress("b", "storing"))
    assert out.take() == [SendReport(100.0 + PROGRESS_DELAY_S)]


@pytest.mark.parametrize(
    ("value", "reported"),
    [(0.5, 0.5), (math.nan, 0.0), (-1.0, 0.0), (math.inf, 1e15), (-math.inf, 0.0)],
)
def test_engine_metrics_are_reported_in_the_form_of_the_protocol(
    value: float, reported: float
) -> None:
    assert figure(value) == reported
    made, _ = reports()
    made.take("a", "")
    made.checkpoint(Checkpoint("a", Digest("x"), value))
    assert made.checkpoints["a"].done == reported


def test_a_change_is_sent_once_and_an_end_until_it_is_acknowledged() -> None:
    made, _ = reports()
    made.take("a", "")
    made.report(AttemptProgress("a", "running"))
    assert [p.phase for p in sync(made).progress] == ["running"]
    assert sync(made).progress == ()
    made.report(AttemptProgress("a", "storing"))
    made.end(AttemptEnd("a", Digest("x")))
    sent = sync(made)
    assert sent.progress == ()
    assert [end.attempt_id for end in sent.ended] == ["a"]
    assert sync(made, 100.0 + REPEAT_ENDS_EVERY_S - 1).ended == ()
    assert len(sync(made, 100.0 + REPEAT_ENDS_EVERY_S).ended) == 1
    made.acknowledge("a")
    made.acknowledge("a")
    assert sync(made, 100.0 + 3 * REPEAT_ENDS_EVERY_S).ended == ()
    assert made.knows("a")
