"""A worker that cannot reach the store takes nothing new until it can."""

from msgspec import structs
from tests.flowmesh_core.machine.world import SOLO, World, plan, shape, step

from flowmesh_api.v1.enums import RejectionCause
from flowmesh_core.machine.events import WorkerConnected, WorkerSynced
from flowmesh_core.protocol.frames import sync_frames
from flowmesh_core.protocol.messages import AttemptEnd, Hello, Sync, decode_worker
from flowmesh_core.status.projection import worker_statuses
from flowmesh_core.units import Digest

PROBLEM = "the URL was refused (403); check the account"


def say(world: World, problem: str) -> None:
    worker = world.machine.state.workers["w"]
    world.apply(WorkerSynced("w", worker.incarnation, Sync(1, store_problem=problem)))


def test_it_gets_no_new_work_and_its_status_says_why() -> None:
    world = World()
    world.join("w")
    say(world, PROBLEM)
    world.submit(plan(step("a")))
    world.tick(1.0)
    assert world.attempts() == []
    (status,) = worker_statuses(world.machine.state, world.now)
    assert (status.state, status.store_problem) == ("cordoned", PROBLEM)
    (rejection,) = world.machine.state.rejections
    assert rejection.cause is RejectionCause.DRAINING
    assert "cannot reach the store" in rejection.detail
    say(world, "")
    world.tick(1.0)
    assert len(world.attempts()) == 1


def test_it_keeps_what_it_runs() -> None:
    world = World()
    world.join("w")
    uid = world.submit(plan(step("a", uses=SOLO)))
    world.tick(1.0)
    say(world, PROBLEM)
    world.tick(1.0)
    (assignment,) = world.attempts()
    world.finish(assignment.attempt_id)
    world.tick(1.0)
    assert world.finals[uid].phase == "Succeeded"


def test_it_may_join_with_the_problem() -> None:
    world = World()
    hello = Hello(2, 1, "process", 0.0, shape("w"), store_problem=PROBLEM)
    world.apply(WorkerConnected(hello))
    assert not world.machine.state.takes_work(world.machine.state.workers["w"])
    world.apply(WorkerConnected(structs.replace(hello, store_problem="")))
    assert world.machine.state.takes_work(world.machine.state.workers["w"])


def test_every_part_of_a_long_report_has_it() -> None:
    ends = tuple(AttemptEnd(f"a{n}", Digest("0" * 64)) for n in range(5_000))
    frames = sync_frames(Sync(1, ended=ends, store_problem=PROBLEM))
    assert len(frames) > 1
    assert {decode_worker(frame).store_problem for frame in frames} == {PROBLEM}
