from tests.flowmesh_core.machine.world import MAP, World, dataset, metrics, plan, rows_of, step

from flowmesh_api.v1.lineage import Derivation
from flowmesh_core.lineage import derivations
from flowmesh_core.lineage.derivation import PARAM_BYTES_MAX
from flowmesh_core.lineage.rows import row_origins


def ended(world: World, uid: str) -> list[Derivation]:
    run = world.ended_runs[uid]
    return derivations(uid, run.plan, run.artifacts, run.lines, run.steps)


def mapped(world: World, uid: str = "u1") -> list[Derivation]:
    """Two row-wise steps over three chunks, in a world with one worker."""
    data = dataset("a", "b", "c")
    steps = (
        step("first", rows_of(data), uses=MAP, value=1),
        step("second", rows_of("first"), uses=MAP, long="x" * PARAM_BYTES_MAX),
    )
    world.submit(plan(*steps), uid, artifacts=[data])
    world.run()
    return ended(world, uid)


def test_a_derivation_names_parameters_artifacts_and_where_it_was_made() -> None:
    world = World()
    world.join("w1")
    first, second = mapped(world)
    assert first.params == {"value": 1}
    assert second.params["long"]["bytes"] == PARAM_BYTES_MAX + 2
    [given] = first.inputs["rows"]
    assert (first.about[given].kind, first.about[given].rows) == ("dataset", 3)
    assert [(m.worker, m.actions) for m in first.makers] == [("w1", 3)]


def test_a_hit_is_a_separate_derivation_that_names_the_run_that_made_the_result() -> None:
    world = World()
    world.join("w1")
    mapped(world)
    again = mapped(world, "u2")
    assert [d.uid for d in again] == ["u2", "u2"]
    assert [d.producers for d in again] == [("u1",), ("u1",)]
    assert all(d.hits for d in again)


def test_chunks_are_followed_through_row_wise_steps_to_the_rows_that_came_in() -> None:
    world = World()
    world.join("w1")
    walked = mapped(world)[::-1]
    run = world.ended_runs["u1"]
    known = [*run.artifacts.values(), *(s.outputs["rows"] for s in run.steps.values())]
    manifests = {a.digest: a.manifest for a in known if a and a.manifest}
    found = row_origins(walked[0].outputs["rows"], walked, manifests)
    assert found.complete
    assert [[(o.step, o.chunk, o.first_row) for o in path] for path in found.chunks] == [
        [("", k, k), ("second", k, k), ("first", k, k)] for k in range(3)
    ]
    assert not found.whole
    lost = {d: m for d, m in manifests.items() if d != walked[1].inputs["rows"][0]}
    short = row_origins(walked[0].outputs["rows"], walked, lost)
    assert (short.complete, [len(path) for path in short.chunks]) == (False, [2, 2, 2])


def test_a_derivation_marks_an_output_that_uses_every_row() -> None:
    made = Derivation(
        uid="u",
        run="r",
        namespace="a",
        step="join",
        engine="data.sql",
        contract=1,
        implementation=1,
        inputs={"rows": (dataset("a").digest,)},
        outputs={"rows": dataset("b", "c").digest},
        time_s=1.0,
    )
    manifest = dataset("b", "c").manifest
    assert manifest is not None
    found = row_origins(made.outputs["rows"], [made], {made.outputs["rows"]: manifest})
    assert [len(path) for path in found.chunks] == [1, 1]
    assert found.whole == (("join", "rows", (dataset("a").digest,)),)
    assert metrics(x=1).manifest is None
