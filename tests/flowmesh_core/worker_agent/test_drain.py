"""A worker that leaves ends what it can, stores checkpoints of the rest, and says goodbye last."""

from tests.flowmesh_core.worker_agent.worker import (
    Worker,
    assignment,
    blob,
    digest,
    of_type,
    prewarm,
)

from flowmesh_core.protocol.messages import Checkpoint, FailureReport
from flowmesh_core.worker_agent import events as e
from flowmesh_core.worker_agent import instructions as i


def drained() -> FailureReport:
    return FailureReport("drained", "it stopped")


def test_a_draining_worker_returns_waiting_attempts_at_once_and_accepts_no_new_ones() -> None:
    worker = Worker(grace_s=30.0)
    worker.run(assignment("1"))
    worker.desire(assign=(assignment("2", inputs={"rows": blob("r")}),))
    worker.post(e.StopRequested())
    assert worker.failure("2") == "drained"
    assert worker.phase("1") == "running"
    worker.desire(assign=(assignment("3"),), prewarm=(prewarm("b"),))
    assert worker.failure("3") == "drained"
    assert worker.agent.reports.draining
    assert worker.agent.prewarmer.entries == {}


def test_an_attempt_that_ends_within_half_of_the_grace_period_is_not_interrupted() -> None:
    worker = Worker(grace_s=30.0)
    worker.run(assignment("1"), assignment("2"))
    host = worker.instances[0].id
    for now_s, done in ((1.0, 10.0), (2.0, 20.0)):
        worker.now_s = now_s
        worker.post(e.AttemptProgressed(host, "1", int(done), done, 100.0, "steps"))
    assert worker.post(e.StopRequested()) == [i.RequestCheckpoint(host, "2")]
    assert worker.advance(14.9) == []
    assert worker.advance(0.1) == [i.RequestCheckpoint(host, "1"), i.RequestCheckpoint(host, "2")]


def test_an_attempt_past_its_estimate_is_asked_for_a_checkpoint_at_half_the_grace_period() -> None:
    worker = Worker(grace_s=30.0)
    worker.run(assignment("1"))
    host = worker.instances[0].id
    for now_s, done in ((1.0, 50.0), (2.0, 99.0)):
        worker.now_s = now_s
        worker.post(e.AttemptProgressed(host, "1", int(done), done, 100.0, "steps"))
    assert worker.post(e.StopRequested()) == []
    assert worker.advance(15.0) == [i.RequestCheckpoint(host, "1")]


def test_a_checkpoint_is_stored_before_the_attempt_is_returned() -> None:
    worker = Worker(grace_s=30.0)
    worker.run(assignment("1"))
    worker.post(e.StopRequested())
    assert worker.finish("1", failure=drained()) == [i.FlushCheckpoints("1")]
    worker.post(e.CheckpointStored(Checkpoint("1", digest("c"), 5.0)))
    worker.post(e.CheckpointsFlushed("1"))
    assert worker.failure("1") == "drained"
    assert worker.agent.reports.checkpoints["1"].done == 5.0


def test_attempts_that_remain_at_the_end_of_the_grace_period_are_returned() -> None:
    worker = Worker(grace_s=30.0)
    worker.run(assignment("1"))
    worker.desire(drain=True)
    worker.advance(30)
    assert worker.failure("1") == "drained"


def test_a_second_request_to_stop_returns_all_attempts_at_once() -> None:
    worker = Worker(grace_s=30.0)
    worker.run(assignment("1"))
    worker.post(e.StopRequested())
    worker.post(e.StopRequested())
    assert worker.failure("1") == "drained"


def test_a_draining_worker_leaves_once_every_end_is_acknowledged() -> None:
    worker = Worker()
    worker.run(assignment("1"))
    worker.finish("1")
    worker.post(e.StopRequested())
    assert of_type(i.Leave, worker.done) == []
    assert worker.desire(acknowledged=("1",)) == [i.Leave()]
    assert worker.timers == {}


def test_a_draining_worker_leaves_after_five_seconds_without_an_acknowledgement() -> None:
    worker = Worker()
    worker.run(assignment("1"))
    worker.finish("1")
    worker.post(e.StopRequested())
    assert worker.advance(4.9) == []
    assert worker.advance(0.1) == [i.Leave()]
    assert worker.desire(acknowledged=("1",)) == []


def test_an_idle_worker_leaves_at_once() -> None:
    worker = Worker()
    assert worker.post(e.StopRequested()) == [i.Leave()]
