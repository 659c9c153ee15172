"""An attempt is fetched, run and stored, and ends once, whatever happens to it."""

import pytest
from tests.flowmesh_core.worker_agent.worker import Worker, assignment, blob, digest, of_type

from flowmesh_core.errors import InvariantError
from flowmesh_core.protocol.messages import Checkpoint, FailureReport, InputRef
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.protocol.validation import of_progress
from flowmesh_core.worker_agent import events as e
from flowmesh_core.worker_agent import instructions as i
from flowmesh_core.worker_agent.transitions import AttemptPhase


def test_an_attempt_passes_through_its_phases_and_ends_with_what_it_used() -> None:
    worker = Worker()
    one = assignment("1", inputs={"rows": blob("rows")})
    assert worker.desire(assign=(one,)) == [i.FetchInputs(one)]
    assert worker.phase("1") == "fetching"
    worker.now_s = 2.0
    (start,) = worker.post(e.InputsReady("1"))
    assert isinstance(start, i.StartHost)
    assert (start.wanted, start.reservation.memory_mib, worker.phase("1")) == (one, 400, "loading")
    worker.now_s = 5.0
    assert worker.load(start.instance_id) == [i.RunAttempt(start.instance_id, "1")]
    assert worker.phase("1") == "running"
    worker.now_s = 9.0
    usage = e.AttemptUsage(units=3, peak_memory_mib=7)
    assert worker.finish("1", outputs=None, usage=usage, keeps_files=True) == [i.StoreOutputs("1")]
    assert worker.phase("1") == "storing"
    worker.now_s = 10.0
    stored = {"rows": Artifact("blob", digest("out"), digest("out"), 5)}
    assert worker.post(e.OutputsStored("1", stored)) == [
        i.DropAttempt(one, None),
        i.ReleaseFiles(start.instance_id, "1"),
    ]
    end = worker.end("1")
    assert (end.outputs, end.failure, end.libraries) == (stored, None, {"torch": "1"})
    assert (end.usage.fetch_s, end.usage.load_s, end.usage.put_s) == (2.0, 3.0, 1.0)
    assert (end.usage.units, end.usage.peak_memory_mib, end.usage.joules) == (3, 7, 1.0)
    assert end.ended_s - end.started_s == 10.0


def test_an_attempt_that_is_already_known_is_not_changed() -> None:
    worker = Worker()
    one = assignment("1")
    worker.run(one)
    assert worker.desire(assign=(one,)) == []
    worker.finish("1")
    assert worker.desire(assign=(one,)) == []
    worker.desire(acknowledged=("1",))
    assert worker.desire(assign=(one,)) == []


def test_an_engine_of_another_version_is_refused_before_anything_is_fetched() -> None:
    worker = Worker()
    old = assignment("1", contract=2)
    failure = FailureReport("engine", "another version")
    assert worker.desire(assign=(old,)) == [i.DropAttempt(old, failure)]
    assert worker.failure("1") == "engine"


def test_an_unavailable_input_ends_the_attempt() -> None:
    worker = Worker()
    worker.desire(assign=(assignment("1", inputs={"rows": blob("rows")}),))
    worker.post(e.InputsFailed("1", FailureReport("missing-blob", "gone", detail="x")))
    assert worker.failure("1") == "missing-blob"


@pytest.mark.parametrize("usable", [True, False])
def test_an_attempt_begins_at_its_checkpoint_or_reports_that_it_cannot(usable: bool) -> None:
    worker = Worker()
    ref = InputRef(Artifact("checkpoint", digest("c"), digest("c")))
    worker.desire(assign=(assignment("1", resume=ref),))
    assert worker.post(e.InputsReady("1")) == [i.FetchCheckpoint("1")]
    spoiled = None if usable else Checkpoint("1", digest("c"), spoiled=(digest("c"),))
    worker.post(e.CheckpointFetched("1", spoiled))
    worker.load_all()
    worker.finish("1")
    assert worker.end("1").usage.resumed is usable
    assert worker.agent.reports.checkpoints == ({} if spoiled is None else {"1": spoiled})


def test_a_failed_attempt_ends_when_its_last_checkpoint_is_stored() -> None:
    worker = Worker()
    worker.run(assignment("1"))
    failure = FailureReport("out-of-memory", "too much")
    assert worker.finish("1", failure=failure) == [i.FlushCheckpoints("1")]
    assert "1" not in worker.agent.reports.ended
    worker.post(e.CheckpointStored(Checkpoint("1", digest("c"), 5.0)))
    worker.post(e.CheckpointsFlushed("1"))
    assert worker.failure("1") == "out-of-memory"


def test_an_attempt_that_fails_for_good_ends_at_once() -> None:
    worker = Worker()
    worker.run(assignment("1"))
    worker.finish("1", failure=FailureReport("bad-input", "no"))
    assert worker.failure("1") == "bad-input"


@pytest.mark.parametrize("phase", ["fetching", "queued", "loading", "running", "storing"])
def test_a_cancelled_attempt_ends_at_once_in_every_phase(phase: str) -> None:
    worker = Worker(memory_mib=400)
    busy, one = assignment("busy", "b"), assignment("1", inputs={"rows": blob("rows")})
    if phase == "queued":
        worker.run(busy)
    worker.desire(assign=(one,))
    if phase != "fetching":
        worker.post(e.InputsReady("1"))
    if phase in ("running", "storing"):
        worker.load_all()
    if phase == "storing":
        worker.finish("1", outputs=None)
    assert worker.phase("1") == phase
    found = worker.desire(cancel=("1",))
    assert worker.failure("1") == "cancelled"
    assert i.DropAttempt(one, worker.end("1").failure) in found
    assert bool(of_type(i.CancelAttempt, found)) == (phase == "running")
    for late in (
        e.InputsReady("1"),
        e.OutputsStored("1", {}),
        e.OutputsFailed("1", FailureReport("store", "late")),
        e.CheckpointFetched("1"),
    ):
        worker.post(late)
    assert worker.failure("1") == "cancelled"


def test_a_host_that_does_not_stop_an_attempt_is_killed_and_its_neighbours_are_preempted() -> None:
    worker = Worker()
    worker.run(assignment("1"), assignment("2"))
    host = worker.instances[0].id
    worker.desire(cancel=("1",))
    assert worker.advance(4.9) == []
    assert worker.advance(0.1) == [i.KillHost(host)]
    worker.exit(host)
    worker.post(e.CheckpointsFlushed("2"))
    assert (worker.failure("1"), worker.failure("2")) == ("cancelled", "preempted")


def test_a_host_that_stops_an_attempt_in_time_is_not_killed() -> None:
    worker = Worker()
    worker.run(assignment("1"))
    worker.desire(cancel=("1",))
    worker.finish("1", failure=FailureReport("cancelled", ""))
    assert worker.advance(60) == []
    assert worker.loaded() == ["a"]


def test_an_attempt_that_runs_too_long_times_out() -> None:
    worker = Worker()
    worker.run(assignment("1", timeout_s=30.0))
    assert worker.advance(29) == []
    assert of_type(i.CancelAttempt, worker.advance(1))
    assert worker.failure("1") == "timeout"


def test_running_attempts_of_a_dead_host_fail_and_waiting_ones_run_in_the_next_host() -> None:
    worker = Worker()
    worker.desire(assign=(assignment("1"), assignment("2")))
    worker.post(e.InputsReady("1"))
    worker.post(e.InputsReady("2"))
    first = worker.instances[0].id
    worker.load(first, capacity=1)
    worker.exit(first)
    worker.post(e.CheckpointsFlushed("1"))
    assert worker.failure("1") == "host-crashed"
    (second,) = worker.instances
    assert second.id != first
    assert worker.load(second.id) == [i.RunAttempt(second.id, "2")]


def test_all_attempts_fail_if_their_engine_never_loads() -> None:
    worker = Worker()
    worker.desire(assign=(assignment("1"), assignment("2")))
    worker.post(e.InputsReady("1"))
    worker.post(e.InputsReady("2"))
    host = worker.instances[0].id
    worker.post(e.HostLoadFailed(host, FailureReport("engine", "no such model")))
    worker.exit(host)
    assert [worker.end(x).failure.message for x in "12"] == ["no such model"] * 2  # type: ignore[union-attr]
    assert worker.instances == []


def test_an_unstorable_output_fails_its_attempt_and_is_a_preemption_once_the_host_ended() -> None:
    worker = Worker()
    worker.run(assignment("1"), assignment("2"))
    for one in "12":
        worker.finish(one, outputs=None, keeps_files=True)
    full = FailureReport("store", "full")
    worker.post(e.OutputsFailed("1", full))
    assert worker.end("1").failure == full
    worker.exit(worker.instances[0].id)
    worker.post(e.OutputsFailed("2", full))
    assert worker.failure("2") == "preempted"


def test_files_of_an_attempt_that_was_cancelled_are_released_when_its_host_ends_it() -> None:
    worker = Worker()
    worker.run(assignment("1"))
    host = worker.instances[0].id
    worker.desire(cancel=("1",))
    assert worker.finish("1", outputs=None, keeps_files=True) == [i.ReleaseFiles(host, "1")]


def test_a_full_state_ends_attempts_that_the_control_plane_does_not_want() -> None:
    worker = Worker()
    worker.run(assignment("1"), assignment("2"))
    worker.desire(full_state=True, keep=("2",))
    assert worker.failure("1") == "cancelled"
    assert worker.phase("2") == "running"


def test_log_lines_are_assigned_to_a_hosts_attempts_and_the_last_ones_to_their_ends() -> None:
    worker = Worker()
    worker.run(assignment("1"))
    host = worker.instances[0].id
    worker.post(e.HostPrinted(host, "first"))
    worker.finish("1")
    worker.run(assignment("2"))
    worker.post(e.HostPrinted(host, "second"))
    worker.finish("2")
    assert (worker.end("1").log, worker.end("2").log) == ("first", "second")
    sync = worker.agent.next_sync(1, worker.now_s, tuple)
    assert [(line.attempt_id, line.text) for line in sync.logs] == [("1", "first"), ("2", "second")]


def test_a_log_line_of_a_host_with_more_than_four_attempts_is_assigned_to_none() -> None:
    worker = Worker()
    worker.desire(assign=tuple(assignment(str(n)) for n in range(5)))
    for n in range(5):
        worker.post(e.InputsReady(str(n)))
    host = worker.instances[0].id
    worker.load(host, capacity=8)
    worker.post(e.HostPrinted(host, "of one of five"))
    worker.finish("0")
    worker.post(e.HostPrinted(host, "of one of four"))
    logs = worker.agent.next_sync(1, worker.now_s, tuple).logs
    assert [line.text for line in logs] == ["of one of four"] * 4


def test_a_transition_that_is_not_in_the_table_is_an_error() -> None:
    worker = Worker()
    worker.run(assignment("1"))
    with pytest.raises(InvariantError, match="cannot change from 'running' to 'loading'"):
        worker.agent.state.attempts["1"].move(AttemptPhase.LOADING)


def test_storing_counts_neither_against_a_timeout_nor_as_run_time() -> None:
    worker = Worker()
    worker.run(assignment("1", timeout_s=5.0))
    worker.now_s = 3.0
    worker.finish("1", outputs=None)
    worker.advance(10.0)
    assert worker.phase("1") == "storing"
    worker.desire(cancel=("1",))
    used = worker.end("1").usage
    assert (used.run_s, used.put_s) == (3.0, 10.0)


def test_storing_a_checkpoint_does_not_count_as_run_time() -> None:
    worker = Worker()
    worker.run(assignment("1"))
    worker.now_s = 3.0
    worker.exit(worker.instance("a").id)
    worker.now_s = 9.0
    worker.post(e.CheckpointsFlushed("1"))
    assert worker.end("1").usage.run_s == 3.0


def test_fetch_time_counts_even_if_the_fetch_fails_and_for_checkpoints_too() -> None:
    worker = Worker()
    resume = InputRef(Artifact("model", digest("c"), digest("c")))
    fails = assignment("1", inputs={"rows": blob("r")})
    resumes = assignment("2", resume=resume)
    worker.desire(assign=(fails, resumes))
    worker.post(e.InputsReady("2"))
    worker.now_s = 2.0
    worker.post(e.InputsFailed("1", FailureReport("store", "none")))
    worker.now_s = 5.0
    worker.post(e.CheckpointFetched("2"))
    worker.load_all()
    worker.finish("2")
    assert (worker.end("1").usage.fetch_s, worker.end("2").usage.fetch_s) == (2.0, 5.0)


def test_an_attempt_reports_what_came_to_the_worker_while_it_fetched() -> None:
    worker = Worker()
    worker.downloads.received_bytes = 1000
    early, late = (assignment(n, inputs={"rows": blob("r")}) for n in ("early", "late"))
    worker.desire(assign=(early,))
    worker.downloads.received_bytes += 10
    worker.desire(assign=(late, assignment("inline")))
    worker.downloads.received_bytes += 5
    worker.post(e.InputsReady("late"))
    worker.post(e.InputsReady("inline"))
    worker.downloads.received_bytes += 2
    worker.post(e.InputsReady("early"))
    worker.downloads.received_bytes += 100
    worker.load_all()
    for name in ("early", "late", "inline"):
        worker.finish(name)
    found = [worker.end(name).usage.fetched_bytes for name in ("early", "late", "inline")]
    assert found == [17, 5, 0]
    assert not worker.downloads.since


def test_bytes_of_a_checkpoint_count_and_those_of_an_attempt_that_is_stopped_too() -> None:
    worker = Worker()
    resume = InputRef(Artifact("model", digest("c"), digest("c")))
    stopped = assignment("2", inputs={"rows": blob("r")})
    worker.desire(assign=(assignment("1", resume=resume), stopped))
    worker.post(e.InputsReady("1"))
    worker.downloads.received_bytes = 9
    worker.post(e.CheckpointFetched("1"))
    worker.desire(cancel=("2",))
    worker.load_all()
    worker.finish("1")
    assert [worker.end(n).usage.fetched_bytes for n in ("1", "2")] == [9, 9]
    assert not worker.downloads.since


def test_attempts_of_an_instance_run_in_the_order_in_which_their_inputs_arrived() -> None:
    worker = Worker()
    slow, quick = assignment("slow", inputs={"rows": blob("r")}), assignment("quick")
    worker.desire(assign=(slow, quick))
    worker.post(e.InputsReady("quick"))
    worker.post(e.InputsReady("slow"))
    found = worker.load(worker.instance("a").id, capacity=1)
    assert [x.attempt_id for x in of_type(i.RunAttempt, found)] == ["quick"]


@pytest.mark.parametrize("unit", ["x" * 1000, "a\x00b"])
def test_a_progress_unit_that_is_not_a_short_text_is_omitted(unit: str) -> None:
    worker = Worker()
    worker.run(assignment("1"))
    (instance,) = worker.instances
    worker.post(e.AttemptProgressed(instance.id, "1", 5, 5.0, 9.0, unit))
    progress = worker.agent.reports.progress["1"]
    assert (progress.done, progress.unit) == (5.0, "")
    assert of_progress(progress) is None
