"""Lost or damaged blobs are reproduced where a step needs them."""

from tests.flowmesh_core.machine.world import MAP as MAP_ENGINE
from tests.flowmesh_core.machine.world import World, after, dataset, only, plan, rows_of, step

from flowmesh_core.graph.plan import StepSource
from flowmesh_core.protocol.results import ActionResult


def test_a_lost_input_is_made_again_with_a_higher_generation(world: World) -> None:
    world.join("w1")
    made = plan(step("a"), step("b", *after("a"), value=1))
    world.submit(made)
    world.run()
    lost = next(iter(world.cache.values())).outputs["metrics"].blob
    second = world.submit(plan(step("a"), step("b", *after("a"), value=2)))
    world.tick(0.1)
    world.lost_blobs.add(lost)
    world.fail(only(world).attempt_id, "missing-blob", detail=lost)
    assert lost in world.discarded
    world.run()
    assert world.finals[second].phase == "Succeeded"
    assert [g for _, _, g in world.publications].count(2) == 1


def test_a_lost_intermediate_that_nobody_needs_runs_nothing(world: World) -> None:
    world.join("w1")
    made = plan(step("a"), step("b", *after("a")), outputs={"out": (StepSource("b", "metrics"),)})
    world.submit(made)
    world.run()
    result = next(r for r in world.cache.values() if not r.inputs)
    world.lost_blobs.add(result.outputs["metrics"].blob)
    world.submit(made)
    world.run()
    assert len(world.executed) == 2


def test_a_lost_output_is_made_again_before_the_verdict(world: World) -> None:
    world.join("w1")
    rows = dataset("one", "two")
    made = plan(
        step("m", rows_of(rows), uses=MAP_ENGINE),
        outputs={"rows": (StepSource("m", "rows"),)},
    )
    world.submit(made, artifacts=[rows])
    world.run()
    chunk_results = [r for r in world.cache.values() if r.outputs["rows"].rows == 1]
    lost = chunk_results[0].outputs["rows"].manifest.chunks[0].blob  # type: ignore[union-attr]
    world.lost_blobs.add(lost)
    uid = world.submit(made, artifacts=[rows])
    world.run()
    assert world.finals[uid].phase == "Succeeded"
    assert lost not in world.lost_blobs
    assert len(world.executed) == 3
    other = chunk_results[1].outputs["rows"].manifest.chunks[0].blob  # type: ignore[union-attr]
    assert other in world.discarded, "what was made together is read again"


def test_a_lost_upload_fails_the_step_with_what_to_do(world: World) -> None:
    world.join("w1")
    rows = dataset("one")
    uid = world.submit(plan(step("m", rows_of(rows), uses=MAP_ENGINE)), artifacts=[rows])
    world.tick(0.1)
    blob = rows.manifest.chunks[0].blob  # type: ignore[union-attr]
    world.fail(only(world).attempt_id, "missing-blob", detail=blob)
    assert (world.finals[uid].phase, world.finals[uid].reason) == ("Failed", "missing-blob")


def test_outputs_that_are_lost_again_and_again_end_the_run(world: World) -> None:
    """As with a worker that reports what it never stores."""
    world.join("w1")
    rows = dataset("one")
    outputs = {name: (StepSource("m", "rows"),) for name in ("a", "b")}
    uid = world.submit(
        plan(step("m", rows_of(rows), uses=MAP_ENGINE), outputs=outputs), artifacts=[rows]
    )
    publish = world._publish

    def losing(key: object, result: ActionResult, *more: object) -> None:
        world.lost_blobs |= {d for a in result.outputs.values() for d in a.blobs()}
        publish(key, result, *more)  # type: ignore[arg-type]

    world._publish = losing  # type: ignore[method-assign]
    world.run()
    assert (world.finals[uid].phase, world.finals[uid].reason) == ("Failed", "missing-blob")
    assert len(world.executed) == 1 + world.machine.state.settings.repairs
