"""Standby hosts import libraries before an engine needs them, and never stand in its way."""

from tests.flowmesh_core.worker_agent.worker import Worker, assignment, of_type, prewarm

from flowmesh_core.worker_agent import events as e
from flowmesh_core.worker_agent import instructions as i
from flowmesh_core.worker_agent.ports import Preload

PRELOADS = {"vllm": Preload("vLLM", 100), "trl": Preload("TRL", 100)}


def worker_of(**settings: object) -> Worker:
    made = Worker(preloads=PRELOADS, **settings)
    made.desire(prewarm=())
    return made


def standby_ids(worker: Worker) -> list[int]:
    return [host.id for host in worker.agent.standby.hosts.values()]


def test_the_next_engine_of_a_kind_uses_the_standby_host_started_meanwhile() -> None:
    worker = worker_of()
    worker.open_idle("vllm.a")
    (ready,) = standby_ids(worker)
    assert of_type(i.StartStandby, worker.done)[-1] == i.StartStandby(ready, "vLLM")
    worker.post(e.StandbyReady(ready))
    worker.run(assignment("1", "vllm.b"))
    assert of_type(i.StartHost, worker.done)[-1].standby_id == ready
    assert standby_ids(worker) != [ready]


def test_a_standby_host_that_still_imports_is_used_too() -> None:
    worker = worker_of()
    worker.open_idle("vllm.a")
    (host,) = standby_ids(worker)
    worker.run(assignment("1", "vllm.b"))
    assert of_type(i.StartHost, worker.done)[-1].standby_id == host


def test_a_worker_without_a_prewarm_list_starts_no_standby_host() -> None:
    worker = Worker(preloads=PRELOADS)
    worker.open_idle("vllm.a")
    assert standby_ids(worker) == []


def test_on_a_cpu_one_standby_host_imports_at_a_time() -> None:
    worker = worker_of()
    worker.open_idle("vllm.a", "trl.a")
    assert list(worker.agent.standby.hosts) == ["vLLM"]
    worker.post(e.StandbyReady(standby_ids(worker)[0]))
    assert list(worker.agent.standby.hosts) == ["vLLM", "TRL"]


def test_on_a_cpu_none_starts_while_an_engine_loads_or_an_attempt_waits_for_memory() -> None:
    worker = worker_of()
    worker.desire(assign=(assignment("1", "vllm.a", memory_mib=700),))
    worker.post(e.InputsReady("1"))
    assert standby_ids(worker) == []
    worker.run(assignment("2", "x", memory_mib=350))
    assert worker.phase("2") == "queued"
    worker.load_all()
    assert standby_ids(worker) == []
    worker.desire(cancel=("2",))
    assert len(standby_ids(worker)) == 1


def test_on_a_cpu_a_standby_hosts_memory_is_reserved_and_freed_for_an_engine() -> None:
    worker = worker_of()
    worker.open_idle("vllm.a")
    (host,) = standby_ids(worker)
    assert worker.agent.memory.free_mib == (500, ())
    worker.run(assignment("1", "x", memory_mib=600))
    assert i.StopStandby(host) in worker.done
    assert worker.loaded() == ["vllm.a", "x"]


def test_a_standby_host_is_not_stopped_if_its_memory_would_not_be_enough() -> None:
    worker = worker_of()
    worker.run(assignment("1", "vllm.a"))
    worker.run(assignment("2", "x", memory_mib=700))
    assert worker.phase("2") == "queued"
    assert len(standby_ids(worker)) == 1


def test_on_devices_a_standby_host_reserves_no_memory() -> None:
    worker = worker_of(devices=1, device_mib=1000)
    worker.open_idle("vllm.on-device")
    assert len(standby_ids(worker)) == 1
    assert worker.agent.memory.free_mib == (1000, (600,))


def test_on_devices_standby_hosts_import_at_once_also_while_engines_load() -> None:
    worker = worker_of(devices=1, device_mib=1000)
    for attempt_id, engine in (("1", "vllm.on-device"), ("2", "trl.on-device")):
        worker.desire(assign=(assignment(attempt_id, engine),))
        worker.post(e.InputsReady(attempt_id))
    assert worker.loaded() == []
    assert set(worker.agent.standby.hosts) == {"vLLM", "TRL"}


def test_a_standby_host_that_no_work_needs_for_ten_minutes_is_stopped() -> None:
    worker = worker_of()
    worker.open_idle("vllm.a")
    (host,) = standby_ids(worker)
    worker.advance(500)
    worker.open_idle("vllm.a")
    assert worker.advance(500) == []
    assert worker.advance(100) == [i.StopStandby(host)]


def test_a_library_that_does_not_import_is_tried_once() -> None:
    worker = worker_of()
    worker.open_idle("vllm.a")
    worker.post(e.StandbyExited(standby_ids(worker)[0]))
    worker.open_idle("vllm.b")
    assert standby_ids(worker) == []


def test_a_host_that_dies_after_it_has_imported_is_replaced() -> None:
    worker = worker_of()
    worker.open_idle("vllm.a")
    (first,) = standby_ids(worker)
    worker.post(e.StandbyReady(first))
    worker.post(e.StandbyExited(first))
    assert standby_ids(worker) not in ([], [first])


def test_an_entry_of_the_prewarm_list_starts_a_standby_host_too() -> None:
    worker = Worker(preloads=PRELOADS)
    worker.desire(prewarm=(prewarm("vllm.a"),))
    worker.load_all()
    assert len(standby_ids(worker)) == 1


def test_an_engine_uses_the_standby_host_and_reserves_its_own_memory() -> None:
    worker = worker_of()
    worker.open_idle("vllm.a", memory_mib=100)
    (host,) = standby_ids(worker)
    worker.run(assignment("1", "vllm.b", memory_mib=850))
    start = of_type(i.StartHost, worker.done)[-1]
    assert (start.reservation.memory_mib, start.standby_id) == (850, host)
    assert of_type(i.StopStandby, worker.done) == []


def test_no_standby_host_is_started_for_a_kind_whose_hosts_keep_dying() -> None:
    worker = worker_of()
    worker.open_idle("vllm.a")
    for _ in range(3):
        (host,) = standby_ids(worker)
        worker.post(e.StandbyReady(host))
        worker.post(e.StandbyExited(host))
    assert standby_ids(worker) == []


def test_a_standby_host_that_reports_a_second_time_that_it_is_ready_changes_nothing() -> None:
    worker = worker_of()
    worker.open_idle("vllm.a")
    (host,) = worker.agent.standby.hosts.values()
    worker.post(e.StandbyReady(host.id))
    assert worker.post(e.StandbyReady(host.id)) == []
    assert host.state == "ready"
