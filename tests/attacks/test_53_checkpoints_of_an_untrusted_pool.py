"""Attacker: T3, a worker of a pool of little trust.
Action: stores a forged checkpoint of a step that others want too, who ask for more trust, and ends.
Must not happen: a trusted worker continues there, and the forgery counts as the trusted one's work.
"""

from collections.abc import Iterator

import pytest
from tests.flowmesh_core.machine.test_checkpoints import begun, noted, resumed
from tests.flowmesh_core.machine.world import SOLO, World, plan, step

from flowmesh_core.accounting.ledger_lines import decode_lines, encode_lines
from flowmesh_core.protocol.results import ActionResult

LOW, HIGH = 1, 3


def submitted(world: World, uid: str, min_trust: int) -> None:
    wanted = plan(step("a", uses=SOLO), namespace=uid, min_trust=min_trust)
    world.submit(wanted, uid, share="group-x", min_trust=LOW)


def forged(world: World) -> str:
    """The worker reports a checkpoint and is lost; returns the checkpoint."""
    first = begun(world)
    assert world.worker_of(first.attempt_id) == "low"
    found = world.checkpoint(first.attempt_id, 99)
    world.lose("low")
    return found


def results(world: World) -> Iterator[ActionResult]:
    yield from world.cache.values()


@pytest.fixture
def attacked() -> World:
    world = World()
    world.join("low", trust=LOW)
    return world


@pytest.mark.parametrize("strict_first", [True, False])
def test_a_trusted_worker_does_not_continue_the_work_of_an_untrusted_one(
    attacked: World, strict_first: bool
) -> None:
    world = attacked
    for uid in ("strict", "easy") if strict_first else ("easy", "strict"):
        submitted(world, uid, HIGH if uid == "strict" else LOW)
    forged(world)
    world.join("high", trust=HIGH)
    second = begun(world)
    assert (world.worker_of(second.attempt_id), resumed(second)) == ("high", "")
    own = world.checkpoint(second.attempt_id, 10)  # less than the forged one says to have
    world.fail(second.attempt_id, "preempted")
    third = begun(world)
    assert resumed(third) == own
    world.finish(third.attempt_id)
    world.run()
    assert {f.phase for f in world.finals.values()} == {"Succeeded"}
    assert [r.provenance.trust for r in results(world)] == [HIGH]


def test_what_is_made_of_a_checkpoint_is_trusted_as_little_as_its_makers(attacked: World) -> None:
    world = attacked
    submitted(world, "easy", LOW)
    checkpoint = forged(world)
    (line,) = noted(world, "easy")
    assert line.trust == LOW
    assert decode_lines(encode_lines([line])) == [line]
    world.join("high", trust=HIGH)
    second = begun(world)
    assert resumed(second) == checkpoint  # its only subscriber accepts that
    more = world.checkpoint(second.attempt_id, 100)
    world.fail(second.attempt_id, "preempted")
    third = begun(world)
    assert resumed(third) == more
    submitted(world, "strict", HIGH)  # it comes while the attempt runs
    world.finish(third.attempt_id)
    world.tick(1.0)
    assert world.finals["easy"].phase == "Succeeded"
    assert "strict" not in world.finals
    assert [r.provenance.trust for r in results(world)] == [LOW]
    last = begun(world)
    assert resumed(last) == ""
    world.finish(last.attempt_id)
    world.run()
    assert world.finals["strict"].phase == "Succeeded"
    assert [r.provenance.trust for r in results(world)] == [HIGH]
