"""Ends whose outputs are not the contract's, or whose words are not what they pass for."""

from typing import Any

import pytest
from tests.flowmesh_core.machine.world import (
    CALL,
    MAP,
    World,
    dataset,
    metrics,
    only,
    outputs_of,
    plan,
    rows_of,
    step,
)

from flowmesh_core.identity.digest import digest_bytes
from flowmesh_core.machine.commands import LookUp
from flowmesh_core.machine.events import CancelRequested, LookedUp
from flowmesh_core.protocol.results import Usage


@pytest.mark.parametrize(
    ("outputs", "message"),
    [
        ({}, "test.noop gave no output 'metrics'"),
        ({"metrics": dataset("one")}, "output 'metrics' of kind dataset instead of metrics"),
        (
            {"metrics": metrics(a=1), "more": metrics(a=1)},
            "an output 'more', which is not in its contract",
        ),
    ],
)
def test_outputs_that_violate_the_contract_fail_the_attempt_as_an_engine_error(
    world: World, outputs: dict[str, Any], message: str
) -> None:
    world.join("w1")
    uid = world.submit(plan(step("a")))
    for _ in range(3):
        world.tick(5.0)
        world.beat()
        world.finish(only(world).attempt_id, outputs=outputs)
    final = world.finals[uid]
    assert (final.phase, final.reason) == ("Failed", "engine")
    assert message in final.message
    assert world.publications == []


def test_a_valid_report_after_an_invalid_one_completes_the_run(
    world: World,
) -> None:
    world.join("w1")
    data = dataset("one", "two")
    uid = world.submit(plan(step("m", rows_of(data), uses=MAP)), artifacts=[data])
    world.tick(0.1)
    first, _ = world.attempts()
    world.finish(first.attempt_id, outputs={"rows": outputs_of(first)["rows"]})
    world.run()
    assert world.finals[uid].phase == "Succeeded"


def test_a_call_with_invalid_outputs_is_not_repeated(world: World) -> None:
    world.join("w1")
    uid = world.submit(plan(step("a", uses=CALL)))
    world.tick(0.1)
    world.finish(only(world).attempt_id, outputs={}, usage=Usage())
    assert not world.attempts()
    assert "may have been made" in world.finals[uid].message


def test_only_digests_are_accepted_as_lost_blobs(world: World) -> None:
    world.join("w1")
    uid = world.submit(plan(step("a")))
    world.tick(0.1)
    lost = digest_bytes(b"lost")
    world.fail(only(world).attempt_id, "missing-blob", detail=f"/etc/passwd {lost} ../x {'A' * 64}")
    assert world.discarded == {lost}
    assert world.finals[uid].reason == "missing-blob"


def test_an_attempt_whose_result_is_being_published_is_not_adopted_again(world: World) -> None:
    """Its worker says once more that it holds it, while its action is wanted anew."""
    world.join("w1")
    uid = world.submit(plan(step("a")))
    world.tick(0.1)
    attempt = only(world)
    world.begin(attempt.attempt_id)
    world.now += 1.0
    world.mute_store = True
    world.finish(attempt.attempt_id)
    world.apply(CancelRequested(uid))
    again = world.submit(plan(step("a")))
    [look_up] = [c for c in world.unanswered if isinstance(c, LookUp)]
    world.unanswered.remove(look_up)
    world.apply(LookedUp(look_up.key, None))
    world.held["w1"] = {attempt.attempt_id: attempt}
    world.hello("w1")  # the laws of the world would see that the first attempt's cost is lost
    world.held["w1"].clear()
    world.answer()
    world.run()
    assert world.finals[again].phase == "Succeeded"
