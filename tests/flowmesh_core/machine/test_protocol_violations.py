"""Workers that break the protocol get nothing new, where others can do it."""

import pytest
from tests.flowmesh_core.machine.world import World, plan, step

from flowmesh_core.machine.commands import Publish
from flowmesh_core.machine.events import ProtocolViolated, WorkerDisagreed
from flowmesh_core.machine.protocol_violations import NAMES_MAX
from flowmesh_core.machine.settings import Settings


def violate(world: World, name: str, times: int) -> None:
    for _ in range(times):
        world.apply(ProtocolViolated(name, "ended[0].attempt_id: not assigned"))


def works(world: World, name: str) -> bool:
    return world.machine.state.takes_work(world.machine.state.workers[name])


def test_after_three_violations_a_worker_gets_no_new_work() -> None:
    world = World()
    world.join("bad", "good")
    violate(world, "bad", 2)
    assert works(world, "bad")
    violate(world, "bad", 1)
    assert not works(world, "bad")
    world.join("bad")  # another process of the same name
    assert not works(world, "bad")
    for n in range(3):
        world.submit(plan(step("a", value=n)))
        world.tick(0.5)
    assert set(world.held) == {"good"}
    assert world.machine.state.figures.protocol_violations == {"default": 3}


@pytest.mark.parametrize("changes", [{"engines": {}}, None])
def test_the_last_worker_of_an_engine_continues_despite_violations(
    changes: dict[str, object] | None,
) -> None:
    world = World()
    world.join("bad")
    if changes is not None:
        world.join("other", **changes)
    violate(world, "bad", 9)
    assert works(world, "bad")
    world.join("good")
    violate(world, "bad", 1)
    assert not works(world, "bad")
    violate(world, "good", 9)
    assert works(world, "good")


def test_on_a_laptop_a_worker_continues_despite_violations() -> None:
    world = World(settings=Settings(violations_max=0))
    world.join("bad", "good")
    violate(world, "bad", 9)
    assert works(world, "bad")


def test_the_number_of_remembered_worker_names_is_bounded() -> None:
    world = World()
    world.join("bad", "good")
    violate(world, "bad", 3)
    for n in range(NAMES_MAX):
        world.machine.state.violations["default", f"worker {n}"] = 1
    violate(world, "good", 1)
    assert len(world.machine.state.violations) == NAMES_MAX + 1
    assert world.machine.state.distrusted == set()


def test_the_same_name_in_another_pool_is_another_worker() -> None:
    world = World()
    world.join("w", pool="low")
    world.join("good")
    violate(world, "w", 3)
    world.lose("w")
    world.join("w", pool="default")
    assert works(world, "w")


def test_violations_before_a_worker_left_count_when_it_returns() -> None:
    world = World()
    world.join("bad", "good")
    world.lose("bad")
    for _ in range(3):
        world.apply(ProtocolViolated("bad", "content of another identity", pool="default"))
    world.join("bad")
    assert works(world, "bad")
    violate(world, "bad", 1)
    assert not works(world, "bad")


def test_a_violation_does_not_count_for_a_worker_of_the_same_name_in_another_pool() -> None:
    world = World()
    world.join("w", "good")
    for _ in range(3):
        world.apply(ProtocolViolated("w", "content of another identity", pool="low"))
    violate(world, "w", 1)
    assert works(world, "w")
    assert world.machine.state.violations == {("low", "w"): 3, ("default", "w"): 1}


def test_a_worker_that_others_contradict_gets_nothing_and_its_results_are_discarded() -> None:
    world = World()
    world.join("liar")
    uid = world.submit(plan(step("a")))
    world.tick(0.1)
    (attempt,) = world.attempts()
    world.join("good")
    world.apply(WorkerDisagreed("liar", "default"))
    assert not works(world, "liar")
    commands = world.finish(attempt.attempt_id)
    assert not any(isinstance(c, Publish) for c in commands or ())
    world.tick(0.1)
    (again,) = world.attempts()
    assert world.worker_of(again.attempt_id) == "good"
    world.finish(again.attempt_id)
    world.tick(0.1)
    assert uid in world.finals
    book = world.machine.state.book
    assert book.receipts_nanousd + book.fabric_nanousd <= book.bill_nanousd


def test_the_last_worker_and_those_of_a_laptop_go_on_although_contradicted() -> None:
    alone = World()
    alone.join("liar")
    alone.apply(WorkerDisagreed("liar", "default"))
    assert works(alone, "liar")
    laptop = World(settings=Settings(violations_max=0))
    laptop.join("liar", "good")
    laptop.apply(WorkerDisagreed("liar", "default"))
    assert works(laptop, "liar")
