"""Lost or damaged blobs are reproduced where a step needs them."""

from msgspec.structs import replace
from tests.flowmesh_core.machine.world import MAP as MAP_ENGINE
from tests.flowmesh_core.machine.world import World, after, dataset, only, plan, rows_of, step

from flowmesh_core.dataset import Manifest
from flowmesh_core.graph.plan import Plan, StepSource
from flowmesh_core.identity import digest_bytes
from flowmesh_core.machine.step_results import dataset_artifact
from flowmesh_core.protocol.results import Artifact


def test_a_lost_input_is_recomputed_with_a_higher_generation(world: World) -> None:
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


def test_a_lost_intermediate_that_no_step_needs_is_not_recomputed(world: World) -> None:
    world.join("w1")
    made = plan(step("a"), step("b", *after("a")), outputs={"out": (StepSource("b", "metrics"),)})
    world.submit(made)
    world.run()
    result = next(r for r in world.cache.values() if not r.inputs)
    world.lost_blobs.add(result.outputs["metrics"].blob)
    world.submit(made)
    world.run()
    assert len(world.executed) == 2


def test_a_lost_output_is_recomputed_before_the_verdict(world: World) -> None:
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


def test_a_lost_upload_fails_the_step_with_a_remedy(world: World) -> None:
    world.join("w1")
    rows = dataset("one")
    uid = world.submit(plan(step("m", rows_of(rows), uses=MAP_ENGINE)), artifacts=[rows])
    world.tick(0.1)
    blob = rows.manifest.chunks[0].blob  # type: ignore[union-attr]
    world.fail(only(world).attempt_id, "missing-blob", detail=blob)
    assert (world.finals[uid].phase, world.finals[uid].reason) == ("Failed", "missing-blob")


def mismatch(world: World, blob: str) -> None:
    """Reports that the rows of a blob are not those of its identity."""
    world.fail(only(world).attempt_id, "missing-blob", detail=blob, reason="identity")


def mapped(rows: Artifact) -> Plan:
    return plan(step("m", rows_of(rows), uses=MAP_ENGINE), step("n", rows_of("m"), uses=MAP_ENGINE))


def test_rows_of_another_identity_are_recomputed_on_another_worker(world: World) -> None:
    world.join("bad")
    rows = dataset("one")
    uid = world.submit(mapped(rows), artifacts=[rows])
    world.tick(0.1)
    first = only(world)
    world.join("good")
    world.finish(first.attempt_id)
    world.tick(0.1)
    blob = only(world).inputs["rows"].artifact.manifest.chunks[0].blob  # type: ignore[union-attr]
    mismatch(world, blob)
    world.tick(0.1)
    again = only(world)
    assert again.action_id == first.action_id
    assert set(world.held["good"]) == {again.attempt_id}
    assert blob not in world.discarded, "its bytes are what their digest says"
    [compared] = world.compared
    assert (compared.result.provenance.worker, compared.blobs) == ("bad", {blob})
    world.run()
    assert world.finals[uid].phase == "Succeeded"


def test_rows_that_never_match_their_identity_fail_the_step(world: World) -> None:
    world.join("bad")
    rows = dataset("one")
    uid = world.submit(mapped(rows), artifacts=[rows])
    for _ in range(1 + world.settings.repairs):
        world.tick(0.1)
        world.finish(only(world).attempt_id)
        world.tick(0.1)
        given = only(world).inputs["rows"].artifact.manifest
        mismatch(world, given.chunks[0].blob)  # type: ignore[union-attr]
    assert (world.finals[uid].phase, world.finals[uid].reason) == ("Failed", "missing-blob")


def test_another_runs_forged_blob_does_not_fail_a_step_with_the_same_rows(world: World) -> None:
    """Two data sets of one identity, of which one has a forged blob, meet in one action."""
    world.join("w1")
    honest = dataset("one")
    chunk = honest.manifest.chunks[0]  # type: ignore[union-attr]
    manifest = Manifest(honest.manifest.schema, (replace(chunk, blob=digest_bytes(b"x")),))  # type: ignore[union-attr]
    forged = dataset_artifact(manifest)
    assert forged.digest == honest.digest
    for name, rows in (("forger", forged), ("owner", honest)):
        made = plan(step("m", rows_of(rows), uses=MAP_ENGINE), namespace=name)
        world.submit(made, name, artifacts=[rows], share="group-x")
    world.tick(0.1)
    mismatch(world, manifest.chunks[0].blob)
    assert world.finals["forger"].phase == "Failed"
    world.run()
    assert world.finals["owner"].phase == "Succeeded"


def test_a_worker_that_names_blobs_it_was_not_given_causes_no_recomputation(world: World) -> None:
    world.join("w1")
    rows = dataset("one")
    uid = world.submit(mapped(rows), artifacts=[rows])
    world.tick(0.1)
    mismatch(world, "f" * 64)
    assert world.finals[uid].phase == "Failed"
