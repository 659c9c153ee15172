"""An instance that must make room falls asleep where it would be closed, and is woken for work."""

from typing import Any

import pytest
from tests.flowmesh_core.worker_agent.worker import (
    Worker,
    assignment,
    component,
    digest,
    of_type,
    prewarm,
    replica,
)

from flowmesh_core.protocol.validation import of_instances
from flowmesh_core.worker_agent import events as e
from flowmesh_core.worker_agent import instructions as i
from flowmesh_core.worker_agent.instances import SILENT_MAX_S
from flowmesh_core.worker_agent.sleep import DEVICE_MIB, WITHIN_S

GPU_MIB = 80_000
WEIGHTS_MIB = 20_000
LARGE_MIB = 60_000


def gpu(devices: int = 1, **settings: Any) -> Worker:
    """A worker with devices on which one engine of ``LARGE_MIB`` fits, and host memory for two."""
    defaults = {"memory_mib": 100_000, "sleep_mib": 2 * WEIGHTS_MIB, "device_mib": GPU_MIB}
    return Worker(devices=devices, asleep_mib=WEIGHTS_MIB, **{**defaults, **settings})


def large(attempt_id: str, name: str, **changes: Any) -> Any:
    return assignment(attempt_id, f"{name}.on-device", memory_mib=LARGE_MIB, **changes)


def opened(worker: Worker, *names: str) -> None:
    """Leaves idle instances behind; each makes room for the next."""
    for name in names:
        worker.opened += 1
        attempt_id = f"opens-{worker.opened}"
        worker.run(large(attempt_id, name))
        settle(worker)
        worker.finish(attempt_id)
        worker.now_s += 1


def settle(worker: Worker) -> None:
    """Hosts do what they were told, until nothing is left to do."""
    for _ in range(20):
        for x in worker.instances:
            match x.state.value:
                case _ if x.killed:
                    worker.exit(x.id)
                case "falling-asleep":
                    worker.post(e.HostAsleep(x.id))
                case "waking":
                    worker.post(e.HostAwake(x.id, 0.5))
                case "closing":
                    worker.exit(x.id)
                case "starting":
                    worker.load(x.id)


def states(worker: Worker) -> dict[str, str]:
    return {x.engine.partition(".")[0]: x.state.value for x in worker.instances}


def test_an_idle_instance_falls_asleep_and_its_devices_memory_is_used_at_once() -> None:
    worker = gpu()
    opened(worker, "a")
    worker.run(large("1", "b"))
    sleeper = worker.instance("a.on-device")
    assert i.SleepHost(sleeper.id) in worker.done
    assert not of_type(i.CloseHost, worker.done)
    assert states(worker) == {"a": "falling-asleep"}
    assert worker.agent.memory.free_mib == (80_000, (GPU_MIB - LARGE_MIB,))
    assert of_type(i.StartHost, worker.asleep("a.on-device"))
    assert worker.agent.memory.free_mib == (80_000, (GPU_MIB - LARGE_MIB - DEVICE_MIB,))


def test_work_for_an_instance_that_is_asleep_wakes_it_and_its_wait_is_its_load() -> None:
    worker = gpu()
    opened(worker, "a", "b")
    worker.run(large("1", "a"))
    assert worker.asleep("b.on-device") == [i.WakeHost(worker.instance("a.on-device").id)]
    assert worker.phase("1") == "loading"
    worker.now_s += 0.75
    run = worker.awake("a.on-device", 0.5)
    assert of_type(i.RunAttempt, run)
    worker.finish("1")
    usage = worker.end("1").usage
    assert usage is not None
    assert usage.load_s == 0.75


def test_an_attempt_never_runs_in_an_instance_that_has_not_woken() -> None:
    worker = gpu()
    opened(worker, "a", "b")
    before = len(of_type(i.RunAttempt, worker.done))
    worker.run(large("1", "a"), large("2", "a"))
    worker.asleep("b.on-device")
    assert len(of_type(i.RunAttempt, worker.done)) == before
    worker.awake("a.on-device")
    assert len(of_type(i.RunAttempt, worker.done)) == before + 2


def test_an_engine_that_cannot_sleep_is_closed() -> None:
    worker = Worker(devices=1, device_mib=GPU_MIB, memory_mib=100_000, sleep_mib=50_000)
    opened(worker, "a")
    worker.run(large("1", "b"))
    assert not of_type(i.SleepHost, worker.done)
    assert states(worker) == {"a": "closing"}


@pytest.mark.parametrize("sleep_mib", [0, WEIGHTS_MIB - 1])
def test_a_worker_without_host_memory_for_it_closes_the_instance(sleep_mib: int) -> None:
    worker = gpu(sleep_mib=sleep_mib)
    opened(worker, "a")
    worker.run(large("1", "b"))
    assert states(worker) == {"a": "closing"}


def test_the_instance_that_fell_asleep_first_is_closed_where_host_memory_is_short() -> None:
    worker = gpu()
    opened(worker, "a", "b", "c")
    assert states(worker) == {"a": "asleep", "b": "asleep", "c": "ready"}
    worker.run(large("1", "d"))
    assert states(worker) == {"a": "closing", "b": "asleep", "c": "ready"}
    worker.exit(worker.instance("a.on-device").id)
    assert states(worker) == {"b": "asleep", "c": "falling-asleep"}


def test_weights_stay_in_host_memory_after_a_wake() -> None:
    """Pinned memory is kept by the process, so it counts until the host exits."""
    worker = gpu(sleep_mib=WEIGHTS_MIB)
    opened(worker, "a", "b")
    assert states(worker) == {"b": "ready", "a": "asleep"}
    worker.run(large("1", "a"))
    assert states(worker) == {"b": "closing", "a": "asleep"}  # no host memory for a second
    settle(worker)
    assert states(worker) == {"a": "ready"}
    assert worker.agent.memory.free_mib[0] == 100_000 - WEIGHTS_MIB


def test_instances_that_are_asleep_are_closed_where_what_they_leave_on_a_device_is_in_the_way() -> (
    None
):
    worker = gpu()
    opened(worker, "a", "b")
    worker.run(assignment("1", "x.on-device", memory_mib=GPU_MIB))
    assert states(worker) == {"a": "closing", "b": "ready"}
    settle(worker)
    assert states(worker) == {"x": "ready"}


def test_an_engine_on_a_cpu_asleep_keeps_what_it_says_that_it_needs() -> None:
    worker = Worker(memory_mib=1000, sleep_mib=500, asleep_mib=150)
    worker.open_idle("a", memory_mib=700)
    worker.run(assignment("1", "b", memory_mib=700))
    assert states(worker) == {"a": "falling-asleep"}
    worker.asleep("a")
    assert worker.instance("a").reservation.memory_mib == 150
    assert worker.agent.memory.free_mib[0] == 1000 - 150 - 700


def test_an_engine_on_a_cpu_that_would_free_too_little_is_closed() -> None:
    worker = Worker(memory_mib=1000, sleep_mib=500, asleep_mib=400)
    worker.open_idle("a", memory_mib=700)
    worker.run(assignment("1", "b", memory_mib=700))
    assert states(worker) == {"a": "closing"}


def test_an_instance_that_is_asleep_wakes_on_its_own_devices() -> None:
    worker = gpu(devices=2)
    worker.run(large("1", "a"))
    worker.run(large("2", "b"))
    for x in "12":
        worker.finish(x)
        worker.now_s += 1
    worker.run(large("3", "c"))
    settle(worker)
    assert worker.instance("a.on-device").reservation.devices == (0,)
    worker.finish("3")
    worker.run(large("4", "a"))
    settle(worker)
    assert worker.instance("a.on-device").reservation.devices == (0,)
    assert states(worker) == {"a": "ready", "b": "ready", "c": "asleep"}


def test_a_new_host_is_started_where_the_devices_of_the_one_that_is_asleep_stay_busy() -> None:
    worker = gpu(devices=2)
    worker.run(large("1", "a"))
    worker.run(large("2", "b"))
    worker.finish("1")
    worker.run(large("3", "c"))
    settle(worker)
    worker.finish("2")
    assert states(worker) == {"a": "asleep", "b": "ready", "c": "ready"}
    worker.run(large("4", "a"))  # device 0 is busy; that of ``b`` can be freed
    settle(worker)
    assert worker.instance("a.on-device").reservation.devices == (1,)
    assert worker.phase("4") == "running"


def test_work_that_needs_another_size_gets_a_new_host() -> None:
    worker = gpu()
    opened(worker, "a", "b")
    worker.run(assignment("1", "a.on-device", memory_mib=LARGE_MIB + 1))
    assert states(worker)["a"] == "closing"
    settle(worker)
    assert worker.instance("a.on-device").reservation.memory_mib == LARGE_MIB + 1


# -- replicas and prewarm ------------------------------------------------------------------------


def test_a_pinned_replica_never_sleeps() -> None:
    worker = gpu(serves=True)
    opened(worker, "a")
    worker.desire(replicas=(replica("a.on-device", memory_mib=LARGE_MIB),))
    worker.run(large("1", "b"))
    assert not of_type(i.SleepHost, worker.done)
    assert worker.failure("1") == "drained"


def test_an_idle_instance_stays_awake_when_a_replica_lists_it_as_other_work_gets_its_turn() -> None:
    worker = gpu(serves=True)
    opened(worker, "a")
    worker.run(assignment("1", "x.on-device", memory_mib=15_000))
    worker.run(assignment("2", "w.on-device", memory_mib=70_000))  # waits for ``x``
    worker.run(assignment("3", "b.on-device", memory_mib=20_000))  # fits beside ``a`` without it
    worker.desire(cancel=("2",), replicas=(replica("a.on-device", memory_mib=LARGE_MIB),))
    assert not of_type(i.SleepHost, worker.done)
    assert states(worker)["a"] == "ready"


def test_a_replica_wakes_the_instance_of_its_signature() -> None:
    worker = gpu(serves=True)
    opened(worker, "a", "b")
    worker.desire(replicas=(replica("a.on-device", memory_mib=LARGE_MIB),))
    settle(worker)
    worker.post(e.HubReady(worker.agent.replicas.hub.number))
    assert states(worker) == {"a": "ready", "b": "asleep"}
    assert [r.state for r in worker.agent.replica_states()] == ["ready"]


def test_a_prewarm_wakes_an_instance_once_there_is_memory() -> None:
    worker = gpu()
    opened(worker, "a", "b")
    worker.desire(prewarm=(prewarm("a.on-device", "m", memory_mib=LARGE_MIB),))
    (fetch,) = of_type(i.FetchComponent, worker.done)
    assert fetch.artifact == component("m")
    worker.post(e.ComponentFetched(fetch.signature, fetch.port))
    settle(worker)
    assert states(worker) == {"a": "ready", "b": "asleep"}


def test_a_prewarm_closes_no_instance_that_is_asleep() -> None:
    """What it leaves on the device is in the way, but there is no work yet."""
    worker = gpu()
    opened(worker, "a", "b")
    listed = (
        prewarm("b.on-device", memory_mib=LARGE_MIB),
        prewarm("x.on-device", memory_mib=GPU_MIB - LARGE_MIB - DEVICE_MIB + 1),
    )
    worker.desire(prewarm=listed)
    settle(worker)
    assert states(worker) == {"a": "asleep", "b": "ready"}


# -- failures ------------------------------------------------------------------------------------


def test_a_sleep_that_fails_closes_the_instance_and_its_engine_is_not_put_asleep_again() -> None:
    worker = gpu()
    opened(worker, "a")
    worker.run(large("1", "b"))
    failure = worker.agent.instances.too_large(assignment("x", memory_mib=1 << 30))
    assert failure is not None
    worker.post(e.HostSleepFailed(worker.instance("a.on-device").id, failure))
    assert states(worker) == {"a": "closing"}
    settle(worker)
    worker.finish("1")
    opened(worker, "a", "b")
    assert digest("a.on-device") not in worker.agent.state.instances


def test_a_wake_that_fails_ends_the_host_and_its_attempts_get_another() -> None:
    worker = gpu()
    opened(worker, "a", "b")
    worker.run(large("1", "a"))
    worker.asleep("b.on-device")
    waking = worker.instance("a.on-device").id
    failure = worker.agent.instances.too_large(assignment("x", memory_mib=1 << 30))
    assert failure is not None
    assert i.KillHost(waking) in worker.post(e.HostSleepFailed(waking, failure))
    assert of_type(i.StartHost, worker.exit(waking))
    settle(worker)
    assert worker.phase("1") == "running"


@pytest.mark.parametrize("wakes", [False, True])
def test_a_host_that_hangs_in_its_sleep_is_ended(wakes: bool) -> None:
    worker = gpu()
    opened(worker, *("ab" if wakes else "a"))
    worker.run(large("1", "a" if wakes else "b"))
    if wakes:
        worker.asleep("b.on-device")
    found = worker.advance(WITHIN_S)
    host = worker.instance("a.on-device").id
    assert found == [i.KillHost(host) if wakes else i.CloseHost(host, 10.0)]
    settle(worker)
    assert worker.phase("1") == "running"


def test_a_host_that_dies_asleep_frees_what_it_had() -> None:
    worker = gpu()
    opened(worker, "a", "b")
    worker.exit(worker.instance("a.on-device").id)
    assert worker.agent.memory.free_mib == (100_000, (GPU_MIB - LARGE_MIB,))


def test_a_host_that_died_asleep_leaves_a_replica_nothing_but_its_own_memory() -> None:
    worker = gpu(serves=True)
    opened(worker, "a")
    worker.run(large("1", "b"))
    settle(worker)
    worker.desire(replicas=(replica("a.on-device", memory_mib=LARGE_MIB),))
    worker.exit(worker.instance("a.on-device").id)
    assert not worker.agent.instances.pinned.retained


def test_revoked_components_end_an_instance_that_is_asleep() -> None:
    worker = gpu()
    given = assignment("1").inputs
    worker.run(large("1", "a", components=(), inputs=given))
    worker.instance("a.on-device").components.add(digest("m"))
    worker.finish("1")
    worker.run(large("2", "b"))
    settle(worker)
    worker.desire(forget=(digest("m"),))
    assert states(worker)["a"] == "closing"


def test_memory_measured_as_it_fell_asleep_does_not_end_a_host_on_the_cpu() -> None:
    worker = Worker(memory_mib=1000, sleep_mib=500, asleep_mib=150)
    worker.open_idle("a", memory_mib=700)
    worker.run(assignment("1", "b", memory_mib=700))
    worker.asleep("a")
    host = worker.instance("a").id
    assert not worker.post(e.MemoryMeasured(host, 650))
    worker.advance(10.0)
    assert worker.post(e.MemoryMeasured(host, 650)) == [i.KillHost(host)]


# -- hosts that are killed -----------------------------------------------------------------------


@pytest.mark.parametrize("cause", ["silent", "revoked"])
def test_work_for_a_host_that_is_killed_as_it_falls_asleep_waits_for_a_new_one(cause: str) -> None:
    worker = gpu()
    opened(worker, "a")
    worker.run(large("1", "b"))
    killed = worker.instance("a.on-device")
    killed.components.add(digest("m"))
    if cause == "silent":
        worker.post(e.HostSilent(killed.id, SILENT_MAX_S + 1))
    else:
        worker.desire(forget=(digest("m"),))
    assert i.KillHost(killed.id) in worker.done
    worker.asleep("a.on-device")  # it said so before it was killed
    worker.exit(worker.instance("b.on-device").id)  # so there is memory for a wake
    worker.run(large("2", "a"))
    assert not of_type(i.WakeHost, worker.done)
    worker.exit(killed.id)
    settle(worker)
    assert worker.phase("2") == "running"
    assert worker.instance("a.on-device") is not killed


def test_a_host_that_is_killed_as_it_wakes_runs_nothing_and_its_attempts_get_another() -> None:
    worker = gpu()
    opened(worker, "a", "b")
    worker.run(large("1", "a"))
    worker.asleep("b.on-device")
    killed = worker.instance("a.on-device")
    worker.post(e.HostSilent(killed.id, SILENT_MAX_S + 1))
    worker.awake("a.on-device")
    assert i.RunAttempt(killed.id, "1") not in worker.done
    worker.exit(killed.id)
    settle(worker)
    assert worker.phase("1") == "running"


# -- reports -------------------------------------------------------------------------------------


def test_a_sleeping_instance_is_reported_as_one_that_closes_and_with_its_last_wake() -> None:
    worker = gpu()
    opened(worker, "a", "b")
    asleep = worker.instance("a.on-device").report()
    assert (asleep.state, asleep.asleep) == ("closing", True)
    worker.run(large("1", "a"))
    settle(worker)
    awake = worker.instance("a.on-device").report()
    assert (awake.state, awake.wake_s) == ("ready", 0.5)
    assert of_instances((asleep, awake)) is None


@pytest.mark.parametrize("wake_s", [float("nan"), float("inf"), -1.0])
def test_invalid_seconds_of_a_wake_do_not_block_reports(wake_s: float) -> None:
    worker = gpu()
    opened(worker, "a", "b")
    worker.run(large("1", "a"))
    worker.asleep("b.on-device")
    worker.awake("a.on-device", wake_s)
    assert of_instances(worker.agent.instance_states()) is None
    assert worker.phase("1") == "running"
