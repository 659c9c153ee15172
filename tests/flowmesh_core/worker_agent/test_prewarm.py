"""What the control plane lists is loaded in order, and never in the way of an attempt."""

from msgspec.structs import replace
from tests.flowmesh_core.worker_agent.worker import (
    Worker,
    assignment,
    blob,
    component,
    digest,
    of_type,
    prewarm,
)

from flowmesh_core.protocol.messages import FailureReport
from flowmesh_core.worker_agent import events as e
from flowmesh_core.worker_agent import instructions as i
from flowmesh_core.worker_agent.transitions import PrewarmState

GONE = FailureReport("missing-blob", "a chunk is gone")


def fetched(worker: Worker, name: str, component: str) -> list[i.Instruction]:
    return worker.post(e.ComponentFetched(digest(name), f"port-{component}"))


def state(worker: Worker, name: str) -> PrewarmState:
    return worker.agent.prewarmer.entries[digest(name)].state


def test_components_are_fetched_one_at_a_time_in_the_order_of_the_list() -> None:
    worker = Worker()
    found = worker.desire(prewarm=(prewarm("a", "m", "n"), prewarm("b", "o")))
    assert found == [i.FetchComponent(digest("a"), "port-m", component("m"))]
    assert fetched(worker, "a", "m") == [i.FetchComponent(digest("a"), "port-n", component("n"))]
    found = fetched(worker, "a", "n")
    assert [x.wanted for x in of_type(i.StartHost, found)] == [prewarm("a", "m", "n")]
    assert of_type(i.ReleaseComponents, found) == [i.ReleaseComponents(digest("a"))]
    assert of_type(i.FetchComponent, found) == [
        i.FetchComponent(digest("b"), "port-o", component("o"))
    ]


def test_components_on_disk_are_loaded_without_waiting_for_a_turn() -> None:
    worker = Worker()
    worker.post(e.ComponentsChanged(frozenset({digest("o")})))
    worker.desire(assign=(assignment("1", "x", inputs={"rows": blob("r")}),))
    found = worker.desire(prewarm=(prewarm("a", "m"), prewarm("b", "o")))
    assert found == [i.FetchComponent(digest("b"), "port-o", component("o"))]
    assert worker.post(e.InputsFailed("1", GONE))[-1] == i.FetchComponent(
        digest("a"), "port-m", component("m")
    )


def test_no_entry_is_fetched_while_an_attempt_fetches() -> None:
    worker = Worker()
    worker.desire(assign=(assignment("1", "x", inputs={"rows": blob("r")}),))
    assert worker.desire(prewarm=(prewarm("a", "m"),)) == []
    assert of_type(i.FetchComponent, worker.post(e.InputsReady("1")))


def test_nothing_is_started_while_an_attempt_waits_for_memory() -> None:
    worker = Worker()
    worker.run(assignment("1", "x", memory_mib=600))
    worker.run(assignment("2", "y", memory_mib=600))
    assert of_type(i.StartHost, worker.desire(prewarm=(prewarm("a", memory_mib=100),))) == []
    worker.desire(cancel=("2",))
    assert worker.instance("a").state == "starting"


def test_an_attempt_finds_the_instance_that_was_started_for_it() -> None:
    worker = Worker()
    worker.desire(prewarm=(prewarm("a"),))
    worker.load_all()
    worker.run(assignment("1", "a"))
    assert worker.phase("1") == "running"
    assert len(of_type(i.StartHost, worker.done)) == 1


def test_idle_instances_are_closed_for_an_entry_only_where_that_is_enough() -> None:
    worker = Worker()
    worker.open_idle("x", "y", memory_mib=300)
    worker.run(assignment("busy", "z", memory_mib=300))
    assert worker.desire(prewarm=(prewarm("a", memory_mib=800),)) == []
    found = worker.desire(prewarm=(prewarm("a", memory_mib=700),))
    assert found == [i.CloseHost(worker.instance("x").id, 10.0)]


def test_an_instance_that_an_attempt_is_about_to_use_is_not_closed_for_an_entry() -> None:
    worker = Worker()
    worker.open_idle("x", memory_mib=800)
    worker.desire(assign=(assignment("1", "x", inputs={"rows": blob("r")}),))
    assert of_type(i.CloseHost, worker.desire(prewarm=(prewarm("a", memory_mib=800),))) == []
    worker.post(e.InputsFailed("1", GONE))
    assert worker.instance("x").state == "closing"


def test_an_entry_is_not_closed_to_make_room_for_another() -> None:
    worker = Worker()
    worker.desire(prewarm=(prewarm("a", memory_mib=800),))
    worker.load_all()
    found = worker.desire(prewarm=(prewarm("a", memory_mib=800), prewarm("b", memory_mib=800)))
    assert found == []
    assert state(worker, "b") is PrewarmState.FETCHED


def test_an_entry_that_waits_for_memory_delays_no_other() -> None:
    worker = Worker()
    worker.run(assignment("1", "x", memory_mib=600))
    worker.desire(prewarm=(prewarm("a", memory_mib=900), prewarm("b", memory_mib=400)))
    assert worker.instance("b").state == "starting"


def test_fetching_stops_for_an_entry_that_leaves_the_list() -> None:
    worker = Worker()
    worker.desire(prewarm=(prewarm("a", "m"), prewarm("b", "o")))
    found = worker.desire(prewarm=(prewarm("b", "o"),))
    assert found == [
        i.ReleaseComponents(digest("a")),
        i.FetchComponent(digest("b"), "port-o", component("o")),
    ]
    assert fetched(worker, "a", "m") == []


def test_an_instance_stays_when_it_leaves_the_list() -> None:
    worker = Worker()
    worker.desire(prewarm=(prewarm("a"),))
    worker.load_all()
    assert worker.desire(prewarm=()) == []
    assert worker.loaded() == ["a"]


def test_an_entry_with_an_unavailable_component_is_given_up_until_it_changes() -> None:
    worker = Worker()
    worker.desire(prewarm=(prewarm("a", "m"),))
    found = worker.post(e.ComponentFailed(digest("a"), GONE))
    assert found == [i.ReleaseComponents(digest("a")), i.PrewarmFailed(prewarm("a", "m"), GONE)]
    assert worker.desire(prewarm=(prewarm("a", "m"),)) == []
    assert of_type(i.FetchComponent, worker.desire(prewarm=(prewarm("a", "n"),)))


def test_entries_that_can_never_run_here_are_given_up_with_the_reason() -> None:
    worker = Worker()
    listed = (prewarm("a", contract=2), prewarm("b", memory_mib=5000), prewarm("c"))
    given_up = of_type(i.PrewarmFailed, worker.desire(prewarm=listed))
    assert [x.failure.kind for x in given_up] == ["engine", "out-of-memory"]
    assert worker.instance("c").state == "starting"


def test_an_engine_that_dies_before_it_served_is_not_loaded_again_until_work_loads_it() -> None:
    worker = Worker()
    worker.desire(prewarm=(prewarm("a"),))
    worker.load_all()
    assert of_type(i.StartHost, worker.exit(worker.instance("a").id)) == []
    assert state(worker, "a") is PrewarmState.FAILED
    worker.run(assignment("1", "a"))
    assert state(worker, "a") is PrewarmState.OPEN
    worker.finish("1")
    assert of_type(i.StartHost, worker.exit(worker.instance("a").id))


def test_an_instance_that_made_room_for_an_attempt_is_loaded_again_when_there_is_memory() -> None:
    worker = Worker()
    worker.desire(prewarm=(prewarm("a", memory_mib=800),))
    worker.load_all()
    worker.run(assignment("1", "b", memory_mib=800))
    worker.exit(worker.instance("a").id)
    worker.load_all()
    worker.finish("1")
    assert worker.instance("b").state == "closing"
    worker.exit(worker.instance("b").id)
    assert worker.instance("a").state == "starting"


def test_an_isolated_attempt_neither_uses_nor_counts_as_an_instance_of_the_list() -> None:
    worker = Worker()
    worker.run(assignment("1", "a", isolate=True))
    worker.desire(prewarm=(prewarm("a"),))
    assert worker.instance("a").isolated_for == ""
    assert len(worker.instances) == 2


def test_nothing_new_is_loaded_without_a_connection() -> None:
    worker = Worker()
    worker.desire(prewarm=(prewarm("a", "m"),))
    worker.post(e.Disconnected())
    assert fetched(worker, "a", "m") == []
    assert of_type(i.StartHost, worker.post(e.Connected()))


def test_an_entry_with_a_store_failure_is_fetched_again_a_minute_later() -> None:
    worker = Worker()
    worker.desire(prewarm=(prewarm("a", "m"), prewarm("b", "o")))
    worker.post(e.ComponentFailed(digest("a"), FailureReport("store", "no answer")))
    assert state(worker, "a") is PrewarmState.FAILED
    fetched(worker, "b", "o")
    assert worker.advance(59.0) == []
    assert worker.advance(1.0) == [i.FetchComponent(digest("a"), "port-m", component("m"))]


def test_an_entry_with_a_store_failure_is_forgotten_when_it_leaves_the_list() -> None:
    worker = Worker()
    worker.desire(prewarm=(prewarm("a", "m"),))
    worker.post(e.ComponentFailed(digest("a"), FailureReport("store", "no answer")))
    worker.desire(prewarm=())
    assert worker.advance(100.0) == []
    assert worker.timers == {}


def test_of_two_entries_with_one_signature_the_later_counts_and_is_fetched_once() -> None:
    worker = Worker(memory_mib=500)
    worker.run(assignment("1", "busy"))
    first, second = prewarm("a", "m"), prewarm("a", "n", memory_mib=300)
    assert worker.desire(prewarm=(first, second)) == [
        i.FetchComponent(second.signature, "port-n", component("n"))
    ]
    worker.post(e.ComponentFetched(second.signature, "port-n"))
    assert worker.desire(prewarm=(first, second)) == []
    assert worker.desire(prewarm=(second, second)) == []
    assert worker.desire(prewarm=()) == [i.ReleaseComponents(second.signature)]


def test_an_entry_with_another_token_continues_and_uses_it_next() -> None:
    worker = Worker()
    first, second = (replace(prewarm("a", "m", "n"), token=token) for token in ("one", "two"))
    (found,) = of_type(i.FetchComponent, worker.desire(prewarm=(first,)))
    assert found.token == "one"
    assert worker.desire(prewarm=(second,)) == []
    (found,) = of_type(i.FetchComponent, fetched(worker, "a", "m"))
    assert (found.port, found.token) == ("port-n", "two")
