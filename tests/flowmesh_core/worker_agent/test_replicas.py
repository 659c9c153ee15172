"""Replicas of services are loaded, kept beside whatever attempts need, and closed on demand."""

from typing import Any

import msgspec
from tests.flowmesh_core.worker_agent.worker import (
    Worker,
    assignment,
    component,
    digest,
    of_type,
    prewarm,
    replica,
)

from flowmesh_core.protocol.messages import FailureReport, RouterAddress, ServingReplica
from flowmesh_core.stages.stage_timing import StageTiming
from flowmesh_core.worker_agent import events as e
from flowmesh_core.worker_agent import instructions as i

GONE = FailureReport("store", "the store does not answer")


def serving(**settings: Any) -> Worker:
    """A worker that has a hub."""
    return Worker(serves=True, **settings)


def ready(worker: Worker, *replicas: ServingReplica) -> None:
    """These replicas, and no others, are loaded and take calls."""
    worker.desire(replicas=replicas)
    worker.load_all()
    worker.post(e.HubReady(worker.agent.replicas.hub.number))


def states(worker: Worker) -> dict[str, str]:
    """The reported state of each service's replica."""
    return {s.replica_id.split("/")[1]: s.state for s in worker.agent.replica_states()}


def reason(worker: Worker) -> str:
    """Why the only replica is not ready."""
    (state,) = worker.agent.replica_states()
    return state.reason


def test_a_replica_is_fetched_loaded_pinned_and_admits_calls() -> None:
    worker, wanted = serving(), replica("a", 0, "m")
    found = worker.desire(replicas=(wanted,), routers=(RouterAddress("unix:/r"),))
    assert found == [
        i.FetchComponent(digest("a"), "port-m", component("m")),
        i.StartHub(1, (RouterAddress("unix:/r"),)),
    ]
    assert states(worker) == {"a": "fetching"}
    found = worker.post(e.ComponentFetched(digest("a"), "port-m"))
    (started,) = of_type(i.StartHost, found)
    assert started.wanted == wanted.opening
    assert of_type(i.PinInstance, found) == [i.PinInstance(started.instance_id, wanted)]
    assert states(worker) == {"a": "loading"}
    worker.load_all()
    assert (states(worker), reason(worker)) == ({"a": "loading"}, "waits for the hub")
    assert worker.post(e.HubReady(1)) == [i.AdmitCalls(started.instance_id, wanted)]
    assert states(worker) == {"a": "ready"}


def test_a_replica_with_other_timings_is_admitted_again_and_loads_nothing() -> None:
    worker, wanted = serving(), replica("a", 0, "m")
    worker.desire(replicas=(wanted,))
    worker.post(e.ComponentFetched(digest("a"), "port-m"))
    worker.load_all()
    worker.post(e.HubReady(1))
    (instance,) = worker.instances
    timed = msgspec.structs.replace(wanted, timings={"answer": StageTiming(0.5, 1, 0.25)})
    assert worker.desire(replicas=(timed,)) == [i.AdmitCalls(instance.id, timed)]
    assert worker.desire(replicas=(timed,)) == []


def test_a_pinned_instance_is_not_closed_for_an_attempt_and_a_prewarmed_one_is() -> None:
    for pinned in (False, True):
        worker = serving()
        if pinned:
            ready(worker, replica("a", memory_mib=800))
        else:
            worker.desire(prewarm=(prewarm("a", memory_mib=800),))
            worker.load_all()
        found = worker.desire(assign=(assignment("1", "b", memory_mib=800),))
        found += worker.post(e.InputsReady("1"))
        assert bool(of_type(i.CloseHost, found)) is not pinned


def test_an_attempt_that_will_never_fit_beside_a_replica_is_handed_back() -> None:
    worker = serving()
    ready(worker, replica("a", memory_mib=800))
    worker.run(assignment("1", "b", memory_mib=800), assignment("2", "c", memory_mib=200))
    assert worker.failure("1") == "drained"
    assert worker.phase("2") == "running"


def test_attempts_that_wait_for_memory_do_not_delay_a_replica() -> None:
    worker = serving()
    worker.run(assignment("1", "x", memory_mib=900))
    worker.run(assignment("2", "y", memory_mib=900), assignment("3", "z", memory_mib=400))
    worker.desire(replicas=(replica("a", memory_mib=600),))
    assert reason(worker) == "waits for memory of this worker"
    worker.finish("1")
    worker.exit(worker.instance("x").id)
    worker.load_all()
    assert worker.loaded() == ["a", "z"]
    assert worker.failure("2") == "drained"


def test_replicas_are_fetched_before_what_is_prewarmed() -> None:
    worker = serving()
    worker.desire(prewarm=(prewarm("b", "n"), prewarm("c", "o")))
    worker.desire(replicas=(replica("a", 0, "m"),))
    found = worker.post(e.ComponentFetched(digest("b"), "port-n"))
    assert [x.signature for x in of_type(i.FetchComponent, found)] == [digest("a")]


def test_an_instance_that_attempts_opened_is_pinned_as_it_is() -> None:
    worker, wanted = serving(), replica("a", 0, "m")
    worker.open_idle("a")
    found = worker.desire(replicas=(wanted,))
    assert of_type(i.StartHost, found) == []
    assert of_type(i.FetchComponent, found) == []
    assert of_type(i.PinInstance, found) == [i.PinInstance(worker.instance("a").id, wanted)]
    worker.post(e.HubReady(1))
    assert states(worker) == {"a": "ready"}


def test_attempts_run_in_the_instance_of_a_replica() -> None:
    worker = serving()
    ready(worker, replica("a"))
    worker.run(assignment("1", "a"))
    assert worker.phase("1") == "running"
    assert len(worker.instances) == 1


def test_two_services_with_one_engine_share_an_instance() -> None:
    worker = serving()
    first, second = replica("a"), replica("a", 1)
    ready(worker, first, second)
    assert len(worker.instances) == 1
    found = worker.desire(replicas=(second,))
    assert found == [i.UnpinInstance(worker.instance("a").id, first.replica_id)]
    worker.run(assignment("1", "b", memory_mib=800))
    assert worker.loaded() == ["a"]


def test_a_replica_that_leaves_the_list_lets_its_calls_end() -> None:
    worker, wanted = serving(), replica("a", memory_mib=800)
    ready(worker, wanted)
    number = worker.instance("a").id
    worker.post(e.CallsBusy(wanted.replica_id, 2, 70))
    assert worker.desire(replicas=()) == [i.UnpinInstance(number, wanted.replica_id)]
    assert states(worker) == {"a": "closing"}
    worker.desire(assign=(assignment("1", "b", memory_mib=800),))
    worker.post(e.InputsReady("1"))
    assert worker.loaded() == ["a"]
    found = worker.post(e.CallsBusy(wanted.replica_id, 0, 90))
    assert found == [i.CloseHost(number, 10.0), i.StopHub(1)]
    assert states(worker) == {}


def test_calls_that_do_not_end_hold_an_instance_for_thirty_seconds() -> None:
    worker, wanted = serving(), replica("a")
    ready(worker, wanted)
    worker.post(e.CallsBusy(wanted.replica_id, 1))
    worker.desire(replicas=())
    worker.advance(29.0)
    assert states(worker) == {"a": "closing"}
    assert worker.advance(2.0) == [i.StopHub(1)]
    assert worker.instance("a").idle


def test_a_replica_that_is_listed_again_while_it_closes_goes_on() -> None:
    worker, wanted = serving(), replica("a")
    ready(worker, wanted)
    worker.post(e.CallsBusy(wanted.replica_id, 1))
    worker.desire(replicas=())
    found = worker.desire(replicas=(wanted,))
    assert found == [i.AdmitCalls(worker.instance("a").id, wanted)]
    assert states(worker) == {"a": "ready"}
    assert worker.timers.keys() <= {("standby", "x")}


def test_the_memory_of_a_replica_stays_reserved_when_its_host_dies() -> None:
    worker, wanted = serving(), replica("a", memory_mib=800)
    ready(worker, wanted)
    worker.exit(worker.instance("a").id)
    assert states(worker) == {"a": "failed"}
    assert reason(worker) == "the host ended"
    worker.run(assignment("1", "b", memory_mib=800))
    assert worker.instances == []
    worker.advance(1.0)
    worker.load_all()
    assert states(worker) == {"a": "ready"}
    assert worker.loaded() == ["a"]


def test_a_replica_that_does_not_load_is_tried_again_after_longer_and_longer_delays() -> None:
    worker = serving()
    worker.desire(replicas=(replica("a"),))
    for delay_s in (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0):
        number = worker.instance("a").id
        worker.post(e.HostLoadFailed(number, FailureReport("engine", "no such dtype\nat line 3")))
        worker.exit(number)
        assert (states(worker), reason(worker)) == ({"a": "failed"}, "no such dtype")
        assert of_type(i.StartHost, worker.advance(delay_s - 0.5)) == []
        assert len(of_type(i.StartHost, worker.advance(0.5))) == 1


def test_what_a_user_gave_is_counted_until_it_loads_or_fails_otherwise() -> None:
    """Code, or a model or an adapter, that cannot be used will not be usable the next time."""
    worker = serving()
    worker.desire(replicas=(replica("a"),))
    worker.post(e.HubReady(1))
    for kind, count in (
        *(("user-code", 1), ("user-code", 2), ("engine", 0), ("bad-input", 1), ("bad-input", 2)),
        *(("out-of-memory", 0), ("bad-input", 1)),
    ):
        number = worker.instance("a").id
        worker.post(e.HostLoadFailed(number, FailureReport(kind, "no module named nomod")))
        worker.exit(number)
        assert [s.code_failures for s in worker.agent.replica_states()] == [count]
        worker.advance(60.0)
    assert [s.code_failures for s in worker.agent.replica_states()] == [1], "while it is loaded"
    worker.load_all()
    assert states(worker) == {"a": "ready"}
    assert [s.code_failures for s in worker.agent.replica_states()] == [0]


def test_after_each_loss_for_want_of_memory_half_as_many_calls_run_at_once() -> None:
    worker, wanted = serving(), replica("a")
    ready(worker, wanted)
    for kind, halvings in (("out-of-memory", 1), ("out-of-memory", 2), ("host-crashed", 2)):
        worker.exit(worker.instance("a").id, kind)
        assert states(worker) == {"a": "failed"}
        worker.done.clear()
        worker.advance(4.0)
        worker.load_all()
        (admitted,) = of_type(i.AdmitCalls, worker.done)
        assert (states(worker), admitted.halvings) == ({"a": "ready"}, halvings)


def test_halvings_are_reported_and_those_of_others_of_the_signature_count() -> None:
    worker, wanted = serving(), replica("a")
    worker.desire(replicas=(msgspec.structs.replace(wanted, halvings=2),))
    worker.load_all()
    worker.post(e.HubReady(1))
    assert [a.halvings for a in of_type(i.AdmitCalls, worker.done)] == [2]
    assert [s.halvings for s in worker.agent.replica_states()] == [2]
    worker.done.clear()
    worker.desire(replicas=(msgspec.structs.replace(wanted, halvings=3),))
    worker.desire(replicas=(wanted,))  # of a leader that has not learned it
    assert [a.halvings for a in of_type(i.AdmitCalls, worker.done)] == [3, 3]
    assert [s.halvings for s in worker.agent.replica_states()] == [3]


def test_another_replica_goes_on_while_one_cannot_be_fetched() -> None:
    worker = serving()
    worker.desire(replicas=(replica("a", 0, "m"), replica("b")))
    worker.post(e.ComponentFailed(digest("a"), GONE))
    worker.load_all()
    worker.post(e.HubReady(1))
    assert states(worker) == {"a": "failed", "b": "ready"}
    assert reason_of(worker, "a") == "the store does not answer"
    assert of_type(i.FetchComponent, worker.advance(1.0))


def reason_of(worker: Worker, service: str) -> str:
    """Why the replica of a service is not ready."""
    return next(s.reason for s in worker.agent.replica_states() if f"/{service}/" in s.replica_id)


def test_a_hub_that_exits_is_started_again_and_gets_every_replica_again() -> None:
    worker, wanted = serving(), replica("a")
    ready(worker, wanted)
    worker.post(e.CallsBusy(wanted.replica_id, 3))
    worker.post(e.HubExited(1, "killed by signal 9"))
    assert (states(worker), reason(worker)) == ({"a": "loading"}, "killed by signal 9")
    assert worker.agent.replica_states()[0].calls == 0
    assert worker.advance(1.0) == [i.StartHub(2, ())]
    worker.post(e.HubExited(1, "late"))
    assert worker.post(e.HubReady(2)) == [i.AdmitCalls(worker.instance("a").id, wanted)]


def test_new_routers_reach_the_hub_that_runs() -> None:
    worker = serving()
    ready(worker, replica("a"))
    there = (RouterAddress("unix:/other"),)
    assert worker.desire(routers=there) == [i.StartHub(1, there)]
    assert worker.desire(routers=there) == []


def test_a_worker_without_a_hub_says_so_and_loads_nothing() -> None:
    worker = Worker()
    assert worker.desire(replicas=(replica("a", 0, "m"),)) == []
    assert states(worker) == {"a": "failed"}
    assert "has no hub" in reason(worker)
    assert worker.desire(replicas=()) == []


def test_replicas_that_exceed_the_memory_together_fail_in_the_order_of_the_list() -> None:
    worker = serving()
    ready(worker, replica("a", memory_mib=600), replica("b", memory_mib=600))
    assert states(worker) == {"a": "ready", "b": "failed"}
    assert "600 MiB" in reason_of(worker, "b")
    worker.run(assignment("1", "c"))
    assert worker.phase("1") == "running"


def test_a_replica_is_loaded_again_without_a_connection() -> None:
    worker = serving()
    ready(worker, replica("a"))
    worker.post(e.Disconnected())
    worker.exit(worker.instance("a").id)
    worker.advance(1.0)
    worker.load_all()
    assert states(worker) == {"a": "ready"}


def test_a_draining_worker_leaves_when_its_calls_have_ended() -> None:
    worker, wanted = serving(grace_s=20.0), replica("a")
    ready(worker, wanted)
    worker.post(e.CallsBusy(wanted.replica_id, 1))
    found = worker.post(e.StopRequested())
    assert of_type(i.UnpinInstance, found)
    assert of_type(i.Leave, found) == []
    worker.desire(replicas=(replica("b"),))
    assert states(worker) == {"a": "closing"}
    assert of_type(i.Leave, worker.advance(10.0))


def test_a_pinned_host_with_a_revoked_model_is_ended() -> None:
    worker, wanted = serving(), replica("a", 0, "m")
    worker.desire(replicas=(wanted,))
    worker.post(e.ComponentFetched(digest("a"), "port-m"))
    worker.load_all()
    number = worker.instance("a").id
    assert i.KillHost(number) in worker.desire(forget=(digest("m"),))
    worker.exit(number)
    assert states(worker) == {"a": "failed"}


def test_replicas_are_reported_when_they_change_and_not_otherwise() -> None:
    worker, wanted = serving(), replica("a")

    def reported() -> Any:
        return worker.agent.next_sync(1, worker.now_s, tuple).replicas

    assert reported() is None
    ready(worker, wanted)
    assert [s.state for s in reported()] == ["ready"]
    assert reported() is None
    worker.post(e.CallsBusy(wanted.replica_id, 2, 40))
    (state,) = reported()
    assert (state.calls, state.units) == (2, 40)
    worker.desire(replicas=())
    worker.post(e.CallsBusy(wanted.replica_id, 0, 44))
    assert reported() == ()
