"""Workflows through the machine: order, merging, reuse, conditions, chunks."""

import gc

import pytest
from tests.flowmesh_core.machine.world import MAP, SOLO, World, after, dataset, plan, rows_of, step

from flowmesh_core.graph.plan import Cache, Edge, StepSource
from flowmesh_core.machine import commands as c
from flowmesh_core.machine import events as e
from flowmesh_core.machine.model import Action, Attempt
from flowmesh_core.placement import decide


def states(world: World, uid: str) -> dict[str, str]:
    return {s.path: s.state for s in world.finals[uid].steps}


def test_a_chain_runs_in_order_and_succeeds(world: World) -> None:
    world.join("w1")
    uid = world.submit(plan(step("a"), step("b", *after("a")), step("c", *after("b"))))
    world.run()
    assert world.finals[uid].phase == "Succeeded"
    assert states(world, uid) == {"a": "COMPLETED", "b": "COMPLETED", "c": "COMPLETED"}
    assert len(world.executed) == 3


def test_completed_actions_are_freed_without_the_garbage_collector(world: World) -> None:
    def alive() -> int:
        return sum(type(thing) in (Action, Attempt) for thing in gc.get_objects())

    world.join("w1")
    gc.collect()
    before = alive()
    gc.disable()
    try:
        world.submit(plan(step("a"), step("b", *after("a"))))
        world.run()
        assert alive() == before
    finally:
        gc.enable()


def test_equal_steps_of_two_sharing_runs_in_flight_run_once_and_split_the_bill(
    world: World,
) -> None:
    world.join("w1")
    one = world.submit(plan(step("a", uses=SOLO), namespace="team-a"), share="group-x")
    two = world.submit(plan(step("z", uses=SOLO), namespace="team-b"), share="group-x")
    world.run()
    assert len(world.executed) == 1
    first, second = world.finals[one], world.finals[two]
    assert abs(first.paid_nanousd - second.paid_nanousd) <= 1
    assert first.paid_nanousd > 0
    assert second.steps[0].in_flight == 1
    assert second.saved_nanousd == first.paid_nanousd
    assert world.machine.state.book.hits_in_flight == 1


def test_without_a_shared_scope_nothing_is_shared(world: World) -> None:
    world.join("w1")
    world.submit(plan(step("a"), namespace="team-a"))
    world.submit(plan(step("a"), namespace="team-b"))
    world.run()
    assert len(world.executed) == 2
    assert world.machine.state.book.saved_nanousd == 0


def test_a_later_run_hits_pays_nothing_and_saves_the_execution_cost(world: World) -> None:
    world.join("w1")
    one = world.submit(plan(step("a"), step("b", *after("a"))))
    world.run()
    two = world.submit(plan(step("a"), step("b", *after("a"))))
    world.run()
    assert len(world.executed) == 2
    assert world.finals[two].paid_nanousd == 0
    assert world.finals[two].saved_nanousd == world.finals[one].paid_nanousd
    assert world.finals[two].hits == 2


@pytest.mark.parametrize(("reuse", "executed"), [("always", 1), ("run", 2), ("never", 4)])
def test_the_reuse_setting_controls_which_runs_share_a_result(
    world: World, reuse: str, executed: int
) -> None:
    world.join("w1")
    made = plan(step("a", cache=Cache(reuse=reuse)), step("b", cache=Cache(reuse=reuse)))
    for _ in range(2):
        world.submit(made)
        world.run()
    assert len(world.executed) == executed


def test_a_false_condition_skips_the_step_and_its_dependents_and_the_run_succeeds(
    world: World,
) -> None:
    world.join("w1")
    uid = world.submit(
        plan(
            step("a", value=1),
            step("b", when="steps['a'].metrics.value > 5", when_steps=("a",)),
            step("c", *after("b")),
            step("d", *after("b", required=False)),
            outputs={"x": (StepSource("b", "metrics"),), "y": (StepSource("d", "metrics"),)},
        )
    )
    world.run()
    final = world.finals[uid]
    assert final.phase == "Succeeded"
    assert states(world, uid) == {
        "a": "COMPLETED",
        "b": "SKIPPED",
        "c": "SKIPPED",
        "d": "COMPLETED",
    }
    assert final.outputs["x"] is None
    assert final.outputs["y"] is not None


def test_a_failed_step_cancels_its_dependents_and_other_branches_continue(world: World) -> None:
    world.join("w1")
    uid = world.submit(
        plan(step("bad", uses=SOLO), step("then", *after("bad")), step("other", value=2))
    )
    world.tick(0.1)
    for a in world.attempts():
        if a.engine == "test.solo":
            world.fail(a.attempt_id, "bad-input", message="no column 'x'")
    world.run()
    final = world.finals[uid]
    assert states(world, uid) == {"bad": "FAILED", "then": "CANCELLED", "other": "COMPLETED"}
    assert (final.phase, final.failed_step, final.reason) == ("Failed", "bad", "bad-input")
    assert final.message == "no column 'x'"


def test_a_row_wise_step_is_one_action_a_chunk_and_equal_chunks_are_shared(world: World) -> None:
    world.join("w1")
    rows = dataset("one", "two", "three")
    more = dataset("zero", "one", "two", "three")
    made = plan(step("m", rows_of(rows), uses=MAP), outputs={"rows": (StepSource("m", "rows"),)})
    first = world.submit(made, artifacts=[rows])
    world.run()
    assert len(world.executed) == 3
    assert world.finals[first].outputs["rows"]["rows"] == 3  # type: ignore[index]
    bigger = plan(step("m", rows_of(more), uses=MAP))
    second = world.submit(bigger, artifacts=[more])
    world.run()
    assert len(world.executed) == 4
    assert world.finals[second].hits == 3
    third = world.submit(made, artifacts=[rows])
    before = world.lookups
    world.run()
    assert world.lookups == before
    assert world.machine.state.book.hits_step_level == 1
    assert world.finals[third].outputs["rows"] == world.finals[first].outputs["rows"]


def test_the_parts_of_a_composed_result_are_copied_from_the_scope_where_they_were_found(
    world: World,
) -> None:
    world.join("w1")
    few, more = dataset("one", "two"), dataset("zero", "one", "two")
    world.submit(plan(step("m", rows_of(few), uses=MAP)), artifacts=[few])
    world.run()
    assert world.copied[-1] == ("ns-team-a", ())
    uid = world.submit(plan(step("m", rows_of(more), uses=MAP)), artifacts=[more], share="group-x")
    world.run()
    assert world.finals[uid].hits == 2, "of the own scope"
    assert world.copied[-1] == ("group-x", ("ns-team-a",))


def test_outputs_are_checked_in_the_publishing_scope_and_inputs_in_their_original_scope(
    world: World,
) -> None:
    checks: list[c.CheckBlobs] = []
    do = world._do

    def noting(command: c.Command) -> None:
        checks.extend([command] if isinstance(command, c.CheckBlobs) else [])
        do(command)

    world._do = noting  # type: ignore[method-assign]
    world.join("w1")
    rows = dataset("one", "two")
    secret = Cache(ignored_inputs=("rows",))
    made = plan(
        step("open", rows_of(rows), uses=MAP),
        step("closed", rows_of(rows), uses=MAP, cache=secret),
        outputs={"a": (StepSource("open", "rows"),), "b": (StepSource("closed", "rows"),)},
    )
    world.submit(made, artifacts=[rows], share="group-x")
    world.run()
    (check,) = checks
    assert set(check.digests) == {"group-x", "ns-team-a"}
    assert check.read_scopes == ("ns-team-a", "group-x")
    assert set().union(*check.digests.values()) <= check.sizes.keys()


def test_chunks_stream_from_row_wise_step_to_row_wise_step(world: World) -> None:
    world.join("w1")
    rows = dataset("one", "two")
    world.submit(
        plan(step("m", rows_of(rows), uses=MAP), step("n", rows_of("m"), uses=MAP, again=1)),
        artifacts=[rows],
    )
    world.tick(0.1)
    first, second = world.attempts()
    world.finish(first.attempt_id)
    world.tick(0.1)
    assert {a.params.get("again") for a in world.attempts()} == {None, 1}
    assert second.attempt_id in {a.attempt_id for a in world.attempts()}
    run = next(iter(world.machine.state.runs.values()))
    assert run.steps["n"].state == "RUNNING"
    world.run()
    assert len(world.executed) == 4


def test_metrics_of_chunks_are_reduced(world: World) -> None:
    world.join("w1")
    rows = dataset("one", "two", "three")
    uid = world.submit(
        plan(
            step("m", rows_of(rows), uses=MAP),
            outputs={"count": (StepSource("m", "metrics"),)},
        ),
        artifacts=[rows],
    )
    world.run()
    assert world.finals[uid].outputs["count"]["value"] == {"count": 3}  # type: ignore[index]


def test_a_concatenation_keeps_the_order_and_leaves_skipped_parts_out(world: World) -> None:
    world.join("w1")
    rows = dataset("one")
    parts = [
        step(f"m[i={i}]", rows_of(rows), uses=MAP, i=i, when="" if i != 1 else "params.no")
        for i in range(3)
    ]
    joined = Edge(
        "rows",
        "dataset",
        tuple(StepSource(p.path, "rows") for p in parts),
        concatenate=True,
    )
    uid = world.submit(
        plan(
            *parts,
            step("all", joined, uses=MAP, last=1),
            outputs={"rows": (StepSource("all", "rows"),)},
            params={"no": False},
        ),
        artifacts=[rows],
    )
    world.run()
    assert world.finals[uid].outputs["rows"]["rows"] == 2  # type: ignore[index]


def test_an_empty_dataset_is_one_action(world: World) -> None:
    world.join("w1")
    rows = dataset()
    uid = world.submit(plan(step("m", rows_of(rows), uses=MAP)), artifacts=[rows])
    world.run()
    assert world.finals[uid].phase == "Succeeded"
    assert len(world.executed) == 1


def test_cancelling_one_of_three_subscribers_leaves_the_action_running(world: World) -> None:
    from flowmesh_core.machine.events import CancelRequested

    world.join("w1")
    uids = [world.submit(plan(step("a"), namespace=f"team-{i}"), share="group-x") for i in range(3)]
    world.tick(0.1)
    world.apply(CancelRequested(uids[0]))
    assert len(world.attempts()) == 1
    assert world.finals[uids[0]].phase == "Cancelled"
    world.run()
    assert [world.finals[u].phase for u in uids[1:]] == ["Succeeded", "Succeeded"]
    paid = [world.finals[u].paid_nanousd for u in uids]
    assert paid[0] == 0  # who leaves while others stay pays nothing, and they pay in equal parts
    assert paid[1] > 0
    assert abs(paid[1] - paid[2]) <= 1


def test_cancelling_the_last_subscriber_withdraws_the_action_and_it_pays(world: World) -> None:
    from flowmesh_core.machine.events import CancelRequested

    world.join("w1")
    uid = world.submit(plan(step("a")))
    world.tick(0.1)
    world.begin(world.attempts()[0].attempt_id)
    world.now += 2.0
    world.apply(CancelRequested(uid))
    assert not world.attempts()
    assert world.finals[uid].phase == "Cancelled"
    assert world.finals[uid].paid_nanousd == pytest.approx(2_000_000, rel=0.2)


def test_a_step_on_the_longest_path_is_placed_first(world: World) -> None:
    world.join("w1")
    world.submit(
        plan(
            step("short", uses=SOLO, value=1),
            step("long", uses=SOLO, value=2),
            step("then", *after("long"), value=3),
        )
    )
    world.tick(0.1)
    first = next(iter(world.attempts()))
    assert first.params["value"] == 2


def test_similar_steps_share_a_signature_that_is_computed_once(world: World) -> None:
    uid = world.submit(plan(*(step(f"s{i}", value=i) for i in range(20)), step("o", uses=SOLO)))
    state = world.machine.state
    assert len(state.actions) == 21
    assert len(state.shapes) == len(state.signatures) == 2
    signatures = {a.info.signature for a in state.actions.values()}
    assert signatures == set(state.signatures)
    world.join("w1")
    world.run()
    assert world.finals[uid].phase == "Succeeded"


def test_a_run_whose_steps_all_change_is_reported_as_changed_once_per_event(world: World) -> None:
    world.join("w1")
    world.mute_store = True
    uid = world.submit(plan(*(step(f"s{i}", value=i) for i in range(20))))
    for command in list(world.unanswered):
        assert isinstance(command, c.LookUp)
        world.machine.apply(e.LookedUp(command.key, None), world.now)
    decision = decide(world.machine.snapshot(world.now), world.machine.state.model)
    commands = world.machine.apply(e.PlacementDecided(decision), world.now)
    assert sum(isinstance(x, c.Assign) for x in commands) > 1
    assert [x for x in commands if isinstance(x, c.RunChanged)] == [c.RunChanged(uid)]
    assert isinstance(commands[-1], c.RunChanged)


def test_a_look_up_that_only_a_cancelled_run_awaited_is_repeated_for_the_next_run(
    world: World,
) -> None:
    """The store need not answer the first one: nobody would wait for it for ever."""
    world.join("w1")
    world.mute_store = True
    rows = dataset("one", "two")
    made = plan(step("m", rows_of(rows), uses=MAP), step("n", value=1))
    first = world.submit(made, artifacts=[rows])
    asked, state = list(world.unanswered), world.machine.state
    assert [type(command) for command in asked] == [c.LookUp, c.LookUp]
    world.apply(e.CancelRequested(first, "not needed"))
    assert not state.step_lookups
    assert not state.actions
    world.unanswered.clear()  # dropped: they are never answered
    second = world.submit(made, artifacts=[rows])
    assert [_key_of(command) for command in world.unanswered] == [_key_of(a) for a in asked]
    world.answer()
    world.run()
    assert world.finals[second].phase == "Succeeded"


def _key_of(command: c.Command) -> e.ActionKey:
    assert isinstance(command, c.LookUp)
    return command.key


def test_a_look_up_that_another_run_also_awaits_is_kept(world: World) -> None:
    world.join("w1")
    world.mute_store = True
    rows = dataset("one", "two")
    made = plan(step("m", rows_of(rows), uses=MAP), step("n", value=1))
    first = world.submit(made, artifacts=[rows])
    second = world.submit(made, artifacts=[rows])
    assert len(world.unanswered) == 2
    world.apply(e.CancelRequested(first, "not needed"))
    assert len(world.machine.state.step_lookups) == len(world.machine.state.actions) == 1
    world.answer()
    world.run()
    assert world.finals[second].phase == "Succeeded"


def test_a_result_whose_name_ignores_an_input_stays_in_its_private_scope(world: World) -> None:
    world.join("w1")
    rows = dataset(*"abcdefgh")
    for team, value in (("team-a", 1), ("team-b", 2)):
        cache = Cache(ignored_inputs=("after-a",))
        made = plan(
            step("a", value=value),
            step("m", rows_of(rows), *after("a"), uses=MAP, cache=cache),
            namespace=team,
        )
        world.submit(made, share="group-x", artifacts=[rows])
        world.run()
    chunks = [scope for scope, _, _ in world.publications]
    assert sorted(set(chunks)) == ["group-x", "ns-team-a", "ns-team-b"]
    assert chunks.count("group-x") == 2  # of step a, whose names tell everything
    assert len({r.run_uid for r in world.cache.values()}) == 2


def test_a_private_result_that_is_recomputed_stays_private(world: World) -> None:
    world.join("w1")
    rows = dataset("one")
    cache = Cache(ignored_inputs=("after-a",))
    made = plan(
        step("a"),
        step("m", rows_of(rows), *after("a"), uses=MAP, cache=cache),
        outputs={"rows": (StepSource("m", "rows"),)},
    )
    world.submit(made, share="group-x", artifacts=[rows])
    world.run()
    result = next(r for (scope, _), r in world.cache.items() if scope == "ns-team-a")
    manifest = result.outputs["rows"].manifest
    assert manifest is not None
    world.lost_blobs.add(manifest.chunks[0].blob)
    again = world.submit(made, share="group-x", artifacts=[rows])
    world.run()
    assert world.finals[again].phase == "Succeeded"
    of_m = [(s, g) for s, name, g in world.publications if name == result.action_id]
    assert of_m == [("ns-team-a", 1), ("ns-team-a", 2)]
