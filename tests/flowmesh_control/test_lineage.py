import asyncio
from collections.abc import Iterable, Mapping

import pytest

from flowmesh_control.lineage import Direction, Lineage
from flowmesh_control.run_lineage import walk_run
from flowmesh_core.errors import StoreUnavailableError
from flowmesh_core.graph.plan import ArtifactSource, Edge, Plan, StepPlan, StepSource
from flowmesh_core.identity import digest_bytes
from flowmesh_core.lineage import Derivation, derivations
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.run.ledger import AttemptLine, HitLine, StepLine
from flowmesh_core.units import Digest
from flowmesh_store.memory import MemoryRecords
from flowmesh_store.store import Store


def d(text: str) -> Digest:
    return digest_bytes(text.encode())


def made(
    uid: str,
    step: str,
    inputs: Mapping[str, str],
    outputs: Mapping[str, str],
    time_s: float = 1.0,
) -> Derivation:
    return Derivation(
        uid=uid,
        run="run",
        namespace="a",
        step=step,
        engine="test",
        contract=1,
        implementation=1,
        inputs={p: (d(t),) for p, t in inputs.items()},
        outputs={p: d(t) for p, t in outputs.items()},
        time_s=time_s,
    )


CHAIN = [
    made("u1", "one", {"rows": "raw"}, {"rows": "clean"}),
    made("u1", "two", {"rows": "clean"}, {"model": "model"}),
    made("u1", "three", {"model": "model", "rows": "clean"}, {"metrics": "score"}),
]


async def everybody(namespaces: Iterable[str]) -> frozenset[str]:
    """Of an administrator, who may see them all."""
    return frozenset(namespaces)


async def test_what_an_artifact_was_made_from_is_walked_to_the_beginning(store: Store) -> None:
    lineage = Lineage(store.records)
    await lineage.write("u1", CHAIN)
    found = await lineage.walk(d("score"), Direction.UP, everybody)
    steps = [x.step for x in found.derivations]
    assert (steps[0], sorted(steps)) == ("three", ["one", "three", "two"])
    assert not found.cut


async def test_what_was_made_from_an_artifact_is_walked_to_the_end(store: Store) -> None:
    lineage = Lineage(store.records)
    await lineage.write("u1", CHAIN)
    down = await lineage.walk(d("clean"), Direction.DOWN, everybody)
    assert sorted(x.step for x in down.derivations) == ["three", "two"]
    assert (await lineage.walk(d("score"), Direction.DOWN, everybody)).derivations == ()


async def test_two_consumers_of_one_artifact_are_two_derivations(store: Store) -> None:
    lineage = Lineage(store.records)
    for uid in ("u1", "u2"):
        await lineage.write(uid, [made(uid, "use", {"rows": "shared"}, {"rows": "same"})])
        await lineage.write(uid, [made(uid, "use", {"rows": "shared"}, {"rows": "same"})])
    found = await lineage.walk(d("shared"), Direction.DOWN, everybody)
    assert sorted(x.uid for x in found.derivations) == ["u1", "u2"]


async def test_a_join_of_very_many_is_found_whole_from_each_and_not_written_whole_for_each(
    store: Store,
) -> None:
    lineage = Lineage(store.records)
    inputs = {f"port{n}": f"part {n}" for n in range(300)}
    join = made("u1", "join", inputs, {"rows": "all"})
    await lineage.write("u1", [join, made("u1", "use", {"rows": "all"}, {"rows": "end"})])
    for n in (0, 150, 299):
        down = await lineage.walk(d(f"part {n}"), Direction.DOWN, everybody)
        assert [x.step for x in down.derivations] == ["join", "use"]
        assert down.derivations[0] == join
    up = await lineage.walk(d("end"), Direction.UP, everybody)
    assert up.derivations[1] == join
    assert await lineage.named(d("part 7")[:12], everybody) == [d("part 7")]
    sizes = [
        len(record.data)
        async for key in store.records.keys("lineage/by-input/")
        if (record := await store.records.read(key)) is not None
    ]
    assert len(sizes) > 100
    assert sum(sizes) < 100_000  # the join alone has 25,000, and some 175 shards


async def test_a_walk_stops_at_its_limit_and_says_so(store: Store) -> None:
    lineage = Lineage(store.records)
    steps = [made("u1", f"s{i}", {"x": str(i)}, {"x": str(i + 1)}) for i in range(20)]
    await lineage.write("u1", steps)
    found = await lineage.walk(d("0"), Direction.DOWN, everybody, limit=5)
    assert len(found.derivations) == 5
    assert found.cut


async def test_a_circle_of_equal_content_ends_the_walk(store: Store) -> None:
    lineage = Lineage(store.records)
    same = [made("u1", "a", {"x": "p"}, {"x": "q"}), made("u1", "b", {"x": "q"}, {"x": "p"})]
    await lineage.write("u1", same)
    found = await lineage.walk(d("p"), Direction.DOWN, everybody)
    assert sorted(x.step for x in found.derivations) == ["a", "b"]


async def test_an_output_of_a_run_is_followed_through_that_run_and_not_through_its_equals(
    store: Store,
) -> None:
    lineage = Lineage(store.records)
    for n in range(50):  # each in its own way to the same bytes
        way = [made(f"u{n}", "one", {"x": f"raw {n}"}, {"x": f"clean {n}"})]
        await lineage.write(
            f"u{n}", [*way, made(f"u{n}", "two", {"x": f"clean {n}"}, {"x": "same"})]
        )
    found = await walk_run(lineage, d("same"), ("u7", "two"), everybody)
    assert [(x.uid, x.step) for x in found.derivations] == [("u7", "two"), ("u7", "one")]
    assert (found.cut, found.others) == (False, {})
    everything = await lineage.walk(d("same"), Direction.UP, everybody)
    assert len(everything.derivations) == 100


async def test_a_walk_through_a_run_begins_at_the_step_that_is_named(store: Store) -> None:
    lineage = Lineage(store.records)
    same = [made("u1", f"s{n}", {"x": f"in {n}"}, {"x": "same"}) for n in range(3)]
    await lineage.write("u1", same)
    for step in ("s0", "s2"):
        found = await walk_run(lineage, d("same"), ("u1", step), everybody)
        assert [x.step for x in found.derivations] == [step]


async def test_what_a_run_was_given_was_not_made_by_a_later_step_of_it(store: Store) -> None:
    lineage = Lineage(store.records)
    again = made("u1", "again", {"x": "other"}, {"x": "raw"}, 3.0)
    await lineage.write("u1", [made("u1", "one", {"x": "raw"}, {"x": "end"}, 2.0), again])
    found = await walk_run(lineage, d("end"), ("u1", "one"), everybody)
    assert [x.step for x in found.derivations] == ["one"]


async def test_what_a_run_was_given_is_followed_into_the_first_run_that_made_it(
    store: Store,
) -> None:
    lineage = Lineage(store.records)
    for uid, time_s in (("u9", 1.0), ("u2", 2.0), ("u3", 30.0)):
        await lineage.write(
            uid, [made(uid, "train", {"rows": f"rows of {uid}"}, {"model": "model"}, time_s)]
        )
    await lineage.write("u1", [made("u1", "use", {"model": "model"}, {"rows": "answers"}, 20.0)])
    found = await walk_run(lineage, d("answers"), ("u1", "use"), everybody)
    assert [x.uid for x in found.derivations] == ["u1", "u9"]
    assert found.others == {d("model"): 1}, "what was made later was not the source"
    short = await walk_run(lineage, d("answers"), ("u1", "use"), everybody, depth=1)
    assert ([x.uid for x in short.derivations], short.cut) == (["u1"], True)

    async def nobody(namespaces: Iterable[str]) -> frozenset[str]:
        return frozenset()

    alone = await walk_run(lineage, d("answers"), ("u1", "use"), nobody)
    assert [x.uid for x in alone.derivations] == ["u1"], "runs of others are not told"


def test_a_ledger_is_projected_to_one_derivation_a_completed_step() -> None:
    reference = "cas:x"
    first = StepPlan(
        path="first",
        name="first",
        engine="data.sql",
        contract=1,
        implementation=2,
        params={},
        fields={},
        edges=(Edge("rows", "dataset", (ArtifactSource("dataset", reference),)),),
    )
    second = StepPlan(
        path="second",
        name="second",
        engine="data.sql",
        contract=1,
        implementation=2,
        params={},
        fields={},
        edges=(Edge("rows", "dataset", (StepSource("first", "rows"),)),),
    )
    plan = Plan("name", "a", (first, second), {})
    lines = [
        HitLine(1.0, "first", 0, d("action-0"), "published", 5, producer="u0"),
        AttemptLine(2.0, "first", 1, d("action-1"), "t", "w", "i", "published", 5, 5),
        AttemptLine(2.0, "first", 2, d("action-2"), "t", "w", "i", "lost", 5, 5),
        StepLine(3.0, "first", "COMPLETED", outputs={"rows": Artifact("dataset", d("o"), d("b"))}),
        StepLine(4.0, "second", "FAILED"),
    ]
    uploaded = {reference: Artifact("dataset", d("in"), d("blob"))}
    [found] = derivations("u1", plan, uploaded, lines)
    assert found.inputs == {"rows": (d("in"),)}
    assert found.outputs == {"rows": d("o")}
    assert (found.actions, found.hits, found.producers) == (2, 1, ("u0",))


class Far(MemoryRecords):
    """A store that answers nobody before three have asked, and refuses one key."""

    def __init__(self, refused: str = "") -> None:
        super().__init__()
        self.asked = 0
        self.three = asyncio.Event()
        self.refused = refused

    async def write(self, key: str, data: bytes, *, if_match: str | None = None) -> str:
        self.asked += 1
        if self.asked == 3:
            self.three.set()
        await self.three.wait()
        if self.refused and self.refused in key:
            raise StoreUnavailableError("not now")
        return await super().write(key, data, if_match=if_match)


async def test_the_records_of_a_run_are_written_side_by_side() -> None:
    far = Far()
    await asyncio.wait_for(Lineage(far).write("u1", CHAIN), 10)
    found = await Lineage(far).walk(d("raw"), Direction.DOWN, everybody)
    assert len(found.derivations) == len(CHAIN)


async def test_a_record_that_could_not_be_written_is_told_and_written_again() -> None:
    far = Far(refused="by-input")
    with pytest.raises(StoreUnavailableError):
        await Lineage(far).write("u1", CHAIN)
    far.refused = ""
    await Lineage(far).write("u1", CHAIN)
    found = await Lineage(far).walk(d("raw"), Direction.DOWN, everybody)
    assert len(found.derivations) == len(CHAIN)
