"""Engine instances stay loaded until their memory is needed, and the right one makes room."""

import math

import pytest
from tests.flowmesh_core.worker_agent.worker import (
    Worker,
    assignment,
    blob,
    digest,
    of_type,
    prewarm,
)

from flowmesh_core.protocol.messages import FailureReport
from flowmesh_core.protocol.validation import of_instances
from flowmesh_core.worker_agent import events as e
from flowmesh_core.worker_agent import instructions as i
from flowmesh_core.worker_agent.instances import STARVED_S


def test_attempts_of_one_signature_share_an_instance_up_to_its_capacity() -> None:
    worker = Worker()
    worker.desire(assign=tuple(assignment(x) for x in "123"))
    for x in "123":
        worker.post(e.InputsReady(x))
    (instance,) = worker.instances
    worker.load(instance.id, capacity=2)
    assert [worker.phase(x) for x in "123"] == ["running", "running", "queued"]
    assert i.RunAttempt(instance.id, "3") in worker.finish("1")


def test_the_idle_instance_used_longest_ago_makes_room() -> None:
    worker = Worker()
    worker.open_idle("a", "b", "a")
    oldest = worker.instance("b").id
    worker.desire(assign=(assignment("1", "c"),))
    assert worker.post(e.InputsReady("1")) == [i.CloseHost(oldest, 10.0)]
    assert worker.phase("1") == "queued"
    (start,) = of_type(i.StartHost, worker.exit(oldest))
    assert start.wanted.signature == digest("c")


def test_one_instance_is_closed_at_a_time_and_the_next_only_where_that_was_not_enough() -> None:
    worker = Worker()
    worker.open_idle("a", "b", memory_mib=300)
    worker.run(assignment("1", "c", memory_mib=900))
    first, second = worker.instance("a").id, worker.instance("b").id
    assert of_type(i.CloseHost, worker.done) == [i.CloseHost(first, 10.0)]
    assert worker.exit(first) == [i.CloseHost(second, 10.0)]
    assert of_type(i.StartHost, worker.exit(second))


def test_work_waits_for_memory_that_busy_instances_hold() -> None:
    worker = Worker()
    worker.run(assignment("1", "a", memory_mib=800))
    worker.run(assignment("2", "b", memory_mib=800))
    assert worker.phase("2") == "queued"
    assert of_type(i.CloseHost, worker.finish("1"))


def test_waiting_attempts_are_placed_in_order_of_arrival() -> None:
    worker = Worker()
    worker.run(assignment("1", "a", memory_mib=600))
    worker.run(assignment("2", "b", memory_mib=800))
    worker.run(assignment("3", "c", memory_mib=100))
    assert worker.phase("3") == "queued"
    worker.desire(cancel=("2",))
    worker.load_all()
    assert worker.phase("3") == "running"


def test_an_attempt_too_large_for_an_empty_worker_is_refused_with_both_numbers() -> None:
    worker = Worker()
    worker.run(assignment("1", memory_mib=5000))
    failure = worker.end("1").failure
    assert failure is not None
    assert failure.kind == "out-of-memory"
    assert "5000 MiB" in failure.message
    assert "1000 MiB" in failure.message


def test_engines_on_devices_reserve_those_with_most_free_memory() -> None:
    worker = Worker(devices=3, device_mib=1000)
    worker.run(assignment("1", "a.on-device"))
    worker.run(assignment("2", "b.on-device", tensor_parallel=2, memory_mib=700))
    starts = of_type(i.StartHost, worker.done)
    assert [s.reservation.devices for s in starts] == [(0,), (1, 2)]
    worker.run(assignment("3", "c.on-device", tensor_parallel=4))
    assert worker.failure("3") == "out-of-memory"


def test_an_isolated_attempt_has_a_separate_instance_that_closes_after_it() -> None:
    worker = Worker()
    worker.open_idle("a")
    worker.run(assignment("1", "a", isolate=True))
    shared = worker.instance("a")
    (own,) = (x for x in worker.instances if x is not shared)
    assert own.isolated_for == "1"
    found = worker.finish("1", outputs=None, keeps_files=True)
    assert not of_type(i.CloseHost, found)
    assert i.CloseHost(own.id, 10.0) in worker.post(e.OutputsStored("1", {}))
    assert shared.state == "ready"


def test_an_isolated_attempt_that_is_cancelled_early_leaves_no_instance() -> None:
    worker = Worker()
    worker.desire(assign=(assignment("1", isolate=True),))
    worker.post(e.InputsReady("1"))
    worker.desire(cancel=("1",))
    (own,) = worker.instances
    assert i.CloseHost(own.id, 10.0) in worker.load(own.id)


def test_higher_priority_runs_first_among_those_that_wait_in_an_instance() -> None:
    worker = Worker()
    worker.run(assignment("1"))
    host = worker.instances[0].id
    more = [assignment(x, priority=p) for x, p in (("2", 0), ("3", 5), ("4", 5))]
    worker.desire(assign=(*(assignment(f"f{n}") for n in range(3)), *more))
    for n in range(3):
        worker.post(e.InputsReady(f"f{n}"))
    for x in "234":
        worker.post(e.InputsReady(x))
    order = [
        r.attempt_id for x in ("1", "f0", "f1") for r in of_type(i.RunAttempt, worker.finish(x))
    ]
    assert order == ["3", "4", "2"]
    assert worker.instances[0].id == host


def test_files_that_are_being_stored_keep_their_instance_open() -> None:
    worker = Worker()
    worker.run(assignment("1", "a", memory_mib=800))
    worker.finish("1", outputs=None, keeps_files=True)
    worker.run(assignment("2", "b", memory_mib=800))
    assert not of_type(i.CloseHost, worker.done)
    assert of_type(i.CloseHost, worker.post(e.OutputsStored("1", {})))


def test_a_host_that_outgrows_its_reservation_is_killed_once() -> None:
    worker = Worker()
    worker.run(assignment("1"))
    host = worker.instances[0].id
    assert worker.post(e.MemoryMeasured(host, 500)) == []
    assert worker.post(e.MemoryMeasured(host, 501)) == [i.KillHost(host)]
    assert worker.post(e.MemoryMeasured(host, 900)) == []
    worker.exit(host)
    worker.post(e.CheckpointsFlushed("1"))
    assert worker.failure("1") == "out-of-memory"
    assert worker.end("1").usage.peak_memory_mib == 900


def test_a_host_on_a_device_is_measured_and_not_killed() -> None:
    worker = Worker(devices=1, device_mib=1000)
    worker.run(assignment("1", "a.on-device"))
    assert worker.post(e.MemoryMeasured(worker.instances[0].id, 9000)) == []


@pytest.mark.parametrize(("silent_s", "shown_s"), [(10.0, 0.0), (20.0, 20.0)])
def test_the_silence_of_a_host_is_reported_after_15_seconds(
    silent_s: float, shown_s: float
) -> None:
    worker = Worker()
    worker.open_idle("a")
    worker.post(e.HostSilent(worker.instances[0].id, silent_s))
    (state,) = worker.agent.instance_states()
    assert state.silent_s == shown_s


def test_a_host_that_hangs_is_killed() -> None:
    worker = Worker()
    worker.run(assignment("1"))
    host = worker.instances[0].id
    assert worker.post(e.HostSilent(host, 121.0)) == [i.KillHost(host)]
    worker.exit(host)
    worker.post(e.CheckpointsFlushed("1"))
    failure = worker.end("1").failure
    assert failure is not None
    assert "stood still: no heartbeat for 121 s" in failure.message


def test_instances_of_the_prewarm_list_make_room_last() -> None:
    worker = Worker()
    worker.open_idle("a", "b")
    worker.desire(prewarm=(prewarm("a"),))
    worker.desire(assign=(assignment("1", "c"),))
    assert of_type(i.CloseHost, worker.post(e.InputsReady("1"))) == [
        i.CloseHost(worker.instance("b").id, 10.0)
    ]


def test_an_instance_of_the_prewarm_list_makes_room_where_no_other_is_idle() -> None:
    worker = Worker()
    worker.open_idle("a")
    worker.run(assignment("1", "b"))
    worker.desire(prewarm=(prewarm("a"),))
    worker.desire(assign=(assignment("2", "c"),))
    assert of_type(i.CloseHost, worker.post(e.InputsReady("2"))) == [
        i.CloseHost(worker.instance("a").id, 10.0)
    ]


def test_nothing_joins_an_instance_that_is_closing() -> None:
    worker = Worker()
    worker.open_idle("a", "b")
    worker.desire(assign=(assignment("1", "c"),))
    worker.post(e.InputsReady("1"))
    closing = worker.instance("a").id
    worker.desire(assign=(assignment("2", "a", inputs={"rows": blob("r")}),))
    worker.post(e.InputsReady("2"))
    assert worker.phase("2") == "queued"
    worker.exit(closing)
    assert worker.instance("c").id != closing


def test_the_last_log_lines_explain_the_end_of_a_dead_host() -> None:
    worker = Worker()
    worker.run(assignment("1"))
    host = worker.instances[0].id
    worker.post(e.HostPrinted(host, "Segmentation fault"))
    worker.exit(host)
    worker.post(e.CheckpointsFlushed("1"))
    assert worker.end("1").failure == FailureReport(
        "host-crashed", "the host ended", detail="Segmentation fault"
    )


def test_nothing_is_closed_while_busy_instances_hold_what_an_attempt_needs() -> None:
    worker = Worker()
    worker.open_idle("x", memory_mib=300)
    worker.run(assignment("busy", "y", memory_mib=400))
    worker.run(assignment("waits", "z", memory_mib=900))
    assert worker.instance("x").state == "ready"
    worker.finish("busy")
    assert worker.instance("x").state == "closing"


def test_an_instance_that_would_not_help_is_not_closed() -> None:
    worker = Worker(devices=2, device_mib=1000)
    worker.open_idle("on-cpu", "a-on-device", tensor_parallel=1, memory_mib=900)
    worker.open_idle("b-on-device", tensor_parallel=1, memory_mib=500)
    worker.run(assignment("busy", "c-on-device", tensor_parallel=1, memory_mib=500))
    worker.run(assignment("waits", "d-on-device", tensor_parallel=1, memory_mib=800))
    closing = [x.engine for x in worker.instances if x.state == "closing"]
    assert closing == ["a-on-device"]


def test_an_attempt_that_has_waited_for_a_minute_gets_the_next_idle_memory() -> None:
    worker = Worker()
    worker.run(assignment("1", "x", memory_mib=400), assignment("2", "y", memory_mib=400))
    worker.run(assignment("waits", "z", memory_mib=900))
    worker.finish("1")
    assert worker.instance("x").state == "ready"
    worker.run(assignment("3", "x"))
    worker.now_s += STARVED_S
    worker.finish("3")
    assert worker.instance("x").state == "closing"


def test_an_instance_that_becomes_idle_is_not_reported_again() -> None:
    worker = Worker()
    worker.run(assignment("1"))
    worker.agent.next_sync(1, worker.now_s, lambda: ())
    worker.finish("1")
    sent = worker.agent.next_sync(2, worker.now_s, lambda: ())
    assert (len(sent.ended), sent.instances, sent.components) == (1, None, None)


def test_a_loaded_instance_is_reported_without_repeating_its_components() -> None:
    worker = Worker()
    worker.desire(assign=(assignment("1"),))
    worker.post(e.InputsReady("1"))
    instance_id = worker.instance("a").id
    worker.post(e.HostStarted(instance_id))
    started = worker.agent.next_sync(1, worker.now_s, lambda: ())
    worker.post(e.HostLoaded(instance_id, 1, 2.0))
    loaded = worker.agent.next_sync(2, worker.now_s, lambda: ())
    worker.exit(instance_id)
    gone = worker.agent.next_sync(3, worker.now_s, lambda: ())
    assert [s.state for s in loaded.instances or ()] == ["ready"]
    assert gone.instances == ()
    assert [s.components for s in (started, loaded, gone)] == [(), None, ()]


def test_a_host_that_reports_a_second_time_that_it_has_loaded_changes_nothing() -> None:
    worker = Worker()
    worker.run(assignment("1"), assignment("2"))
    (instance,) = worker.instances
    assert worker.post(e.HostLoaded(instance.id, 1, 2.0)) == []
    assert (instance.state, instance.capacity) == ("ready", 4)
    worker.finish("1")
    worker.finish("2")
    worker.run(assignment("3", "b", memory_mib=900))
    assert instance.state == "closing"
    assert worker.post(e.HostLoaded(instance.id, 1, 2.0)) == []
    assert instance.state == "closing"


def test_an_attempt_that_comes_after_its_host_was_killed_does_not_get_its_failure() -> None:
    worker = Worker()
    worker.run(assignment("1"))
    (host,) = (x.id for x in worker.instances)
    worker.post(e.MemoryMeasured(host, 501))
    worker.run(assignment("2"))
    assert i.RunAttempt(host, "2") not in worker.done
    worker.exit(host)
    worker.post(e.CheckpointsFlushed("1"))
    worker.load_all()
    assert worker.failure("1") == "out-of-memory"
    assert worker.phase("2") == "running"


def test_a_host_that_has_loaded_when_it_is_killed_for_its_load_fails_what_waited_for_it() -> None:
    worker = Worker()
    worker.desire(assign=(assignment("1"),))
    worker.post(e.InputsReady("1"))
    (host,) = (x.id for x in worker.instances)
    worker.post(e.HostStarted(host))
    assert i.KillHost(host) in worker.post(e.MemoryMeasured(host, 501))
    worker.load(host)
    worker.run(assignment("2"))
    worker.exit(host)
    assert worker.failure("1") == "out-of-memory", "the next load would end the same"
    worker.load_all()
    assert worker.phase("2") == "running", "it came later, and its load may succeed"


def test_a_host_that_hangs_after_a_failed_load_is_killed_too() -> None:
    worker = Worker()
    worker.desire(assign=(assignment("1"),))
    worker.post(e.InputsReady("1"))
    (instance,) = worker.instances
    worker.post(e.HostStarted(instance.id))
    failure = FailureReport("engine", "no such model")
    worker.post(e.HostLoadFailed(instance.id, failure))
    assert worker.post(e.HostSilent(instance.id, 200.0)) == [i.KillHost(instance.id)]
    assert worker.post(e.HostSilent(instance.id, 202.0)) == []
    worker.exit(instance.id)
    assert worker.end("1").failure == failure


@pytest.mark.parametrize(
    ("capacity", "load_s"), [(0, 1.0), (-3, math.nan), (1 << 40, math.inf), (1, -1.0)]
)
def test_invalid_numbers_from_a_host_block_neither_attempts_nor_reports(
    capacity: int, load_s: float
) -> None:
    worker = Worker()
    worker.desire(assign=(assignment("1"),))
    worker.post(e.InputsReady("1"))
    (instance,) = worker.instances
    worker.post(e.HostStarted(instance.id))
    worker.post(e.HostLoaded(instance.id, capacity, load_s))
    assert worker.phase("1") == "running"
    assert of_instances(worker.agent.instance_states()) is None


def test_an_assignment_with_negative_memory_is_refused() -> None:
    worker = Worker()
    worker.run(assignment("1", memory_mib=-500))
    assert worker.failure("1") == "out-of-memory"
    assert worker.agent.memory.free_mib == (1000, ())
