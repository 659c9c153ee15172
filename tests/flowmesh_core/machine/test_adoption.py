"""Which attempts of earlier connections and leaders an action goes on with."""

import pytest
from tests.flowmesh_core.machine.world import World, outputs_of, plan, step

from flowmesh_core.machine import orphans
from flowmesh_core.machine.commands import Acknowledge, Command
from flowmesh_core.machine.events import ActionKey, CancelRequested
from flowmesh_core.machine.orphans import OrphanedEnd, OrphanedEnds
from flowmesh_core.protocol.messages import Assignment, AttemptEnd
from flowmesh_core.units import Digest


def after_a_crash() -> tuple[World, Assignment]:
    """A leader whose worker comes back with an attempt of the leader before."""
    before = World()
    before.join("w1")
    before.submit(plan(step("a")), "run")
    before.tick(0.5)
    [attempt] = before.attempts()
    after = World(epoch=2, now=before.now, recovering_until_s=before.now + 3.0)
    after.held = {"w1": {attempt.attempt_id: attempt}}
    return after, attempt


@pytest.mark.parametrize(
    ("generation", "changes", "adopted"),
    [
        (1, {}, True),
        (2, {}, False),
        (1, {"engines": {}}, False),
        (1, {"device_memory_mib": 0}, False),
    ],
)
@pytest.mark.parametrize("known", [False, True])
def test_only_an_attempt_that_could_be_made_now_continues(
    known: bool, generation: int, changes: dict[str, object], adopted: bool
) -> None:
    world, attempt = after_a_crash()
    world.generations[attempt.attempt_id] = generation
    if known:
        world.submit(plan(step("a")), "run")
    world.join("w1", **changes)
    if not known:
        world.submit(plan(step("a")), "run")
    assert (attempt.attempt_id in world.machine.state.attempts) is adopted


@pytest.mark.parametrize(("generation", "published"), [(1, True), (2, False)])
def test_an_end_of_another_generation_is_not_published(generation: int, published: bool) -> None:
    world, attempt = after_a_crash()
    world.generations[attempt.attempt_id] = generation
    world.held = {}
    end = AttemptEnd(attempt.attempt_id, attempt.action_id, outputs=outputs_of(attempt))
    world.join("w1", ended=(end,))
    world.submit(plan(step("a")), "run")
    made = [r.provenance.attempt_id for r in world.cache.values()]
    assert (attempt.attempt_id in made) is published


def test_the_number_of_ends_per_worker_that_wait_for_their_actions_is_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(orphans, "ENDS_MAX", 3)
    ends = OrphanedEnds()

    def add(worker: str, number: int) -> bool:
        action_id = Digest(f"{number:064x}")
        end = AttemptEnd(f"ns-a/{action_id}/1-1", action_id)
        return ends.add(ActionKey("ns-a", action_id), OrphanedEnd(worker, end, 1))

    assert [add("bad", n) for n in range(5)] == [True, True, True, False, False]
    assert add("good", 9)
    assert add("good", 0)  # in place of the other worker's
    assert ends.pop(ActionKey("ns-a", Digest(f"{0:064x}"))).worker == "good"
    assert add("bad", 5)
    assert len(ends) == 4


@pytest.mark.parametrize("wanted", [True, False])
def test_an_end_that_no_run_needs_after_the_recovery_is_acknowledged_and_forgotten(
    wanted: bool,
) -> None:
    world, attempt = after_a_crash()
    world.held = {}
    end = AttemptEnd(attempt.attempt_id, attempt.action_id, outputs=outputs_of(attempt))
    world.join("w1", ended=(end,))
    assert len(world.machine.state.orphaned_ends) == 1
    acknowledged: list[str] = []
    do = world._do

    def record(command: Command) -> None:
        if isinstance(command, Acknowledge):
            acknowledged.append(command.attempt_id)
        do(command)

    world._do = record  # type: ignore[method-assign]
    if wanted:
        world.submit(plan(step("a")), "run")
    world.tick(4.0)
    assert len(world.machine.state.orphaned_ends) == 0
    assert acknowledged == [attempt.attempt_id]
    assert bool(world.publications) is wanted


def test_an_end_of_an_action_that_was_resolved_otherwise_is_forgotten() -> None:
    world, attempt = after_a_crash()
    world.held = {}
    world.mute_store = True
    world.submit(plan(step("a")), "run")
    end = AttemptEnd(attempt.attempt_id, attempt.action_id, outputs=outputs_of(attempt))
    world.join("w1", ended=(end,))
    world.tick(4.0)
    assert len(world.machine.state.orphaned_ends) == 1, "its look-up is not answered yet"
    world.apply(CancelRequested("run"))
    world.tick(1.0)
    assert len(world.machine.state.orphaned_ends) == 0
