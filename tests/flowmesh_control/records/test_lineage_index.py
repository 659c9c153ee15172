import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowmesh_api.v1.lineage import Derivation, Direction
from flowmesh_api.v1.why import AttemptLine, HitLine
from flowmesh_control.records import lineage_reader
from flowmesh_control.records.lineage_index import LineageIndex
from flowmesh_control.records.lineage_keys import DIGESTS_MAX, matching, run_key
from flowmesh_control.records.run_lineage import walk_run
from flowmesh_core.accounting.ledger_lines import StepLine
from flowmesh_core.errors import StoreUnavailableError
from flowmesh_core.graph.plan import ArtifactSource, Edge, Plan, StepPlan, StepSource
from flowmesh_core.identity import digest_bytes
from flowmesh_core.lineage import derivations
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.units import Digest
from flowmesh_store.keys import check_key
from flowmesh_store.memory import MemoryRecords
from flowmesh_store.ports import Record
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


async def test_upstream_lineage_is_walked_to_the_first_inputs(store: Store) -> None:
    lineage = LineageIndex(store.records)
    await lineage.write("u1", CHAIN)
    found = await lineage.walk(d("score"), Direction.UP, everybody)
    steps = [x.step for x in found.derivations]
    assert (steps[0], sorted(steps)) == ("three", ["one", "three", "two"])
    assert not found.cut


async def test_downstream_lineage_is_walked_to_the_last_outputs(store: Store) -> None:
    lineage = LineageIndex(store.records)
    await lineage.write("u1", CHAIN)
    down = await lineage.walk(d("clean"), Direction.DOWN, everybody)
    assert sorted(x.step for x in down.derivations) == ["three", "two"]
    assert (await lineage.walk(d("score"), Direction.DOWN, everybody)).derivations == ()


async def test_two_consumers_of_one_artifact_are_two_derivations(store: Store) -> None:
    lineage = LineageIndex(store.records)
    for uid in ("u1", "u2"):
        await lineage.write(uid, [made(uid, "use", {"rows": "shared"}, {"rows": "same"})])
        await lineage.write(uid, [made(uid, "use", {"rows": "shared"}, {"rows": "same"})])
    found = await lineage.walk(d("shared"), Direction.DOWN, everybody)
    assert sorted(x.uid for x in found.derivations) == ["u1", "u2"]


async def test_a_join_of_many_inputs_is_found_complete_from_each_input_but_stored_once(
    store: Store,
) -> None:
    lineage = LineageIndex(store.records)
    inputs = {f"port{n}": f"part {n}" for n in range(600)}
    join = made("u1", "join", inputs, {"rows": "all"})
    await lineage.write("u1", [join, made("u1", "use", {"rows": "all"}, {"rows": "end"})])
    for n in (0, 150, 599):
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
    assert sum(sizes) < 200_000  # the join alone has 50,000, and some 230 shards


async def test_a_walk_stops_at_its_limit_and_reports_it(store: Store) -> None:
    lineage = LineageIndex(store.records)
    steps = [made("u1", f"s{i}", {"x": str(i)}, {"x": str(i + 1)}) for i in range(20)]
    await lineage.write("u1", steps)
    found = await lineage.walk(d("0"), Direction.DOWN, everybody, limit=5)
    assert len(found.derivations) == 5
    assert found.cut


async def test_a_cycle_of_equal_content_ends_the_walk(store: Store) -> None:
    lineage = LineageIndex(store.records)
    same = [made("u1", "a", {"x": "p"}, {"x": "q"}), made("u1", "b", {"x": "q"}, {"x": "p"})]
    await lineage.write("u1", same)
    found = await lineage.walk(d("p"), Direction.DOWN, everybody)
    assert sorted(x.step for x in found.derivations) == ["a", "b"]


async def test_a_runs_output_is_followed_through_that_run_and_not_through_runs_with_equal_output(
    store: Store,
) -> None:
    lineage = LineageIndex(store.records)
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
    lineage = LineageIndex(store.records)
    same = [made("u1", f"s{n}", {"x": f"in {n}"}, {"x": "same"}) for n in range(3)]
    await lineage.write("u1", same)
    for step in ("s0", "s2"):
        found = await walk_run(lineage, d("same"), ("u1", step), everybody)
        assert [x.step for x in found.derivations] == [step]


async def test_a_runs_input_is_not_attributed_to_a_later_step_of_the_same_run(store: Store) -> None:
    lineage = LineageIndex(store.records)
    again = made("u1", "again", {"x": "other"}, {"x": "raw"}, 3.0)
    await lineage.write("u1", [made("u1", "one", {"x": "raw"}, {"x": "end"}, 2.0), again])
    found = await walk_run(lineage, d("end"), ("u1", "one"), everybody)
    assert [x.step for x in found.derivations] == ["one"]


async def test_a_runs_input_is_followed_into_the_first_run_that_made_it(
    store: Store,
) -> None:
    lineage = LineageIndex(store.records)
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


LONG = [made("u1", f"s{n}", {"x": str(n)}, {"x": str(n + 1)}) for n in range(450)]


async def test_the_records_of_a_long_run_are_written_side_by_side() -> None:
    far = Far()
    await asyncio.wait_for(LineageIndex(far).write("u1", LONG), 10)
    found = await LineageIndex(far).walk(d("0"), Direction.DOWN, everybody)
    assert len(found.derivations) == len(LONG)


async def test_a_failed_record_write_is_reported_and_can_be_repeated() -> None:
    far = Far(refused="/1.")
    with pytest.raises(StoreUnavailableError):
        await LineageIndex(far).write("u1", LONG)
    far.refused = ""
    await LineageIndex(far).write("u1", LONG)
    found = await LineageIndex(far).walk(d("0"), Direction.DOWN, everybody)
    assert len(found.derivations) == len(LONG)


async def test_a_run_has_one_record_and_a_long_one_has_one_for_each_200_steps(
    store: Store,
) -> None:
    lineage = LineageIndex(store.records)
    await lineage.write("u0", [])
    await lineage.write("u1", LONG[:200])
    [key] = [key async for key in store.records.keys("lineage/")]
    assert key.startswith("lineage/runs/u1/0.")
    long = [msgspec.structs.replace(made, uid="u2") for made in LONG]
    await lineage.write("u2", long)
    await lineage.write("u2", long)
    keys = [key.split(".")[0] async for key in store.records.keys("lineage/")]
    assert keys == ["lineage/runs/u1/0", *(f"lineage/runs/u2/{n}" for n in range(3))]
    up = await lineage.walk(d("450"), Direction.UP, everybody)
    assert len(up.derivations) == 450 + 200  # the other run made the first 200 as well


async def test_many_steps_with_the_same_inputs_and_outputs_are_all_found(store: Store) -> None:
    lineage = LineageIndex(store.records)
    await lineage.write("u1", [made("u1", f"s{n}", {"x": "a"}, {"x": "b"}) for n in range(450)])
    found = await lineage.walk(d("b"), Direction.UP, everybody)
    assert len(found.derivations) == 450


async def test_runs_of_earlier_releases_are_found_beside_current_ones(store: Store) -> None:
    lineage = LineageIndex(store.records)
    old = made("u0", "old", {"rows": "source"}, {"rows": "raw"})
    record = msgspec.json.encode([old])
    await store.records.write(f"lineage/by-output/{d('raw')[:2]}/u0", record)
    await store.records.write(f"lineage/by-input/{d('source')[:2]}/u0", record)
    await lineage.write("u1", CHAIN)
    up = await lineage.walk(d("score"), Direction.UP, everybody)
    assert up.derivations[-1] == old
    assert len(up.derivations) == len(CHAIN) + 1
    down = await lineage.walk(d("source"), Direction.DOWN, everybody)
    assert down.derivations[0] == old
    assert len(down.derivations) == len(CHAIN) + 1
    assert await lineage.named(d("source")[:8], everybody) == [d("source")]
    assert await lineage.named(d("score")[:8], everybody) == [d("score")]


class Counted(MemoryRecords):
    """A store that counts what is asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.read_keys: list[str] = []
        self.listed: list[str] = []

    async def read(self, key: str) -> Record | None:
        self.read_keys.append(key)
        return await super().read(key)

    async def keys(self, prefix: str) -> AsyncIterator[str]:
        self.listed.append(prefix)
        async for key in super().keys(prefix):
            yield key


@pytest.mark.parametrize("held_max", [10_000, 10])
async def test_a_query_reads_the_records_that_it_needs_and_no_others(
    held_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lineage_reader, "KEYS_CACHED_MAX", held_max)
    counted = Counted()
    for n in range(1_500):
        derivation = made(f"u{n}", "step", {"x": f"in {n}"}, {"x": f"out {n}"})
        await LineageIndex(counted).write(f"u{n}", [derivation])
    await LineageIndex(counted).write("next", [made("next", "step", {"x": "out 7"}, {"x": "end"})])
    found = await LineageIndex(counted).walk(d("in 7"), Direction.DOWN, everybody)
    assert [x.uid for x in found.derivations] == ["u7", "next"]
    assert len(counted.read_keys) <= 4  # a filter may match for nothing, very seldom
    # Once a walk, or, where they are too many to hold, once a step.
    assert counted.listed == ["lineage/runs/"] * (1 if held_max > 1_500 else 3)


async def test_an_unreadable_record_omits_only_its_own_run_from_a_query(
    caplog: pytest.LogCaptureFixture,
) -> None:
    records = MemoryRecords()
    await LineageIndex(records).write("u1", CHAIN)
    await records.write(run_key("u2", 0, [d("raw")]), b"{")
    await records.write("lineage/runs/stray", b"?")
    found = await LineageIndex(records).walk(d("raw"), Direction.DOWN, everybody)
    assert len(found.derivations) == len(CHAIN)
    assert "lineage/runs/u2/" in caplog.text


@given(st.sets(st.integers(0, 5_000), min_size=1, max_size=DIGESTS_MAX))
def test_a_key_matches_every_digest_that_it_was_made_for(numbers: set[int]) -> None:
    digests = [d(f"digest {n}") for n in numbers]
    key = run_key("workflow-0123abcd", 12, digests)
    assert check_key(key) == key
    assert len(key) < 800
    for digest in digests:
        assert matching([key], [d("another"), digest]) == [key]
        assert matching([key], [digest[:8]]) == [key]


@pytest.mark.parametrize(("digests", "share"), [(20, 0.001), (200, 0.002), (DIGESTS_MAX, 0.02)])
def test_few_keys_match_falsely(digests: int, share: float) -> None:
    key = run_key("u", 0, [d(f"held {n}") for n in range(digests)])
    wrong = sum(bool(matching([key], [d(f"other {n}")])) for n in range(5_000))
    assert wrong <= share * 5_000
