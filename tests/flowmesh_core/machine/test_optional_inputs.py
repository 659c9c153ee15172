"""Inputs with several sources, or that do without one: what a step gets, and when it runs."""

import itertools
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.flowmesh_core.graph.conftest import build
from tests.flowmesh_core.machine.world import (
    ASK,
    CONTRACTS,
    MAP,
    NOOP,
    World,
    dataset,
    plan,
    rows_of,
    step,
)

from flowmesh_api.v1.runs import StepStatus
from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.catalog.contract import INSTANCES, Param, ParamType
from flowmesh_core.dataset.manifest import Manifest
from flowmesh_core.dataset.schema import Schema
from flowmesh_core.graph.compile import compile_workflow
from flowmesh_core.graph.plan import (
    ABSENT,
    ALL,
    EMPTY,
    FIRST,
    SKIP,
    ArtifactSource,
    Edge,
    Plan,
    StepPlan,
    StepSource,
)
from flowmesh_core.identity.digest import digest_bytes
from flowmesh_core.machine.model import Run
from flowmesh_core.machine.prewarm import forecast_demand
from flowmesh_core.machine.revoked_steps import revoked_steps
from flowmesh_core.protocol.messages import Assignment, EngineVariant
from flowmesh_core.protocol.results import Artifact
from flowmesh_core.status.input_uses import input_uses

PATHED = tuple(
    replace(c, params=(Param("tag", ParamType.STRING, required=True),)) for c in (MAP, NOOP)
)
"""The contracts with a parameter that names the step, so that no two steps share an action."""
A, B = dataset("a1", "a2"), dataset("b1")
BASE = Artifact("model", digest_bytes(b"base"), digest_bytes(b"base"), 10 << 20)
STATES = ("COMPLETED", "SKIPPED", "FAILED")
COLUMNS = {"text": "string"}


def source(path: str, rows: Artifact, state: str) -> StepPlan:
    when = "false" if state == "SKIPPED" else ""
    return step(path, rows_of(rows), uses=MAP, when=when, tag=path, fail=state == "FAILED")


def joined(pick: str, when_skipped: str) -> Edge:
    return Edge(
        "rows",
        "dataset",
        (StepSource("a", "rows"), StepSource("b", "rows")),
        concatenate=pick == ALL,
        pick=pick,
        when_skipped=when_skipped,
        empty_columns=COLUMNS if when_skipped == EMPTY else {},
    )


def made_plan(first: str, second: str, pick: str, when_skipped: str) -> Plan:
    return plan(
        source("a", A, first),
        source("b", B, second),
        step("use", joined(pick, when_skipped), tag="use"),
        step("next", Edge("m", "metrics", (StepSource("use", "metrics"),)), tag="next"),
    )


def drive(world: World, uid: str) -> dict[str, Assignment]:
    """Runs everything to its end; returns the last assignment of each step."""
    found: dict[str, Assignment] = {}
    for _ in range(100):
        if uid in world.finals:
            return found
        world.tick(0.5)
        world.beat()
        for assignment in world.attempts():
            found[assignment.params["tag"]] = assignment
            if assignment.attempt_id not in {a.attempt_id for a in world.attempts()}:
                continue
            if assignment.params.get("fail"):
                world.fail(assignment.attempt_id, "bad-input")
            else:
                world.finish(assignment.attempt_id)
    raise AssertionError(world.story())


def states(world: World, uid: str) -> dict[str, str]:
    return {s.path: s.state for s in world.finals[uid].steps}


def rows_given(assignment: Assignment) -> list[str] | None:
    """The chunks of the input ``rows``; None where it is absent."""
    given = assignment.inputs.get("rows")
    if given is None:
        return None
    assert given.artifact.manifest is not None
    return [str(c.rows) for c in given.artifact.manifest.chunks]


@pytest.mark.parametrize("pick", [ALL, FIRST])
@pytest.mark.parametrize("when_skipped", [SKIP, ABSENT, EMPTY])
@pytest.mark.parametrize(("first", "second"), list(itertools.product(STATES, STATES)))
def test_the_truth_table_of_two_sources(
    world: World, first: str, second: str, pick: str, when_skipped: str
) -> None:
    world.join("w1")
    uid = world.submit(made_plan(first, second, pick, when_skipped), artifacts=[A, B])
    assignments = drive(world, uid)
    run, ended = world.ended_runs[uid], states(world, uid)
    if "FAILED" in (first, second):
        assert ended["use"] == ended["next"] == "CANCELLED"
        assert "use" not in assignments
        return
    done = [p for p, state in (("a", first), ("b", second)) if state == "COMPLETED"]
    if not done and when_skipped == SKIP:
        assert ended["use"] == ended["next"] == "SKIPPED"
        assert run.steps["use"].reason == "input skipped: rows from a and 1 more"
        return
    assert ended["use"] == ended["next"] == "COMPLETED"
    given = rows_given(assignments["use"])
    if not done:
        assert given == (None if when_skipped == ABSENT else [])
        if when_skipped == EMPTY:
            manifest = assignments["use"].inputs["rows"].artifact.manifest
            assert manifest == Manifest(Schema.of(COLUMNS))
        return
    used = done[:1] if pick == FIRST else done
    assert given == [c for p in used for c in chunks(run, p)]


def chunks(run: Run, path: str) -> list[str]:
    artifact = run.steps[path].outputs["rows"]
    assert artifact is not None
    assert artifact.manifest is not None
    return [str(c.rows) for c in artifact.manifest.chunks]


FORMS = [(p, w) for p in (ALL, FIRST) for w in (SKIP, ABSENT, EMPTY)]


@pytest.mark.parametrize(("pick", "when_skipped"), FORMS)
@pytest.mark.parametrize(("first", "second"), list(itertools.product(STATES[:2], STATES[:2])))
def test_after_a_restart_a_step_gets_the_same_inputs_and_nothing_runs_twice(
    world: World, first: str, second: str, pick: str, when_skipped: str
) -> None:
    made = made_plan(first, second, pick, when_skipped)
    world.join("w1")
    world.submit(made, "u1", artifacts=[A, B])
    world.run(until=lambda w: bool(states_now(w, "u1") & {"use"}) or "u1" in w.finals)
    before = {a.params["tag"]: a for a in world.attempts()}
    later = World(epoch=2, cache=world.cache, now=world.now + 1)
    later.join("w2")
    later.submit(made, "u1", artifacts=[A, B], restored=tuple(world.ledger.get("u1", ())))
    assignments = drive(later, "u1")
    unbroken = World()
    unbroken.join("w1")
    unbroken.submit(made, "u1", artifacts=[A, B])
    expected = drive(unbroken, "u1")
    assert states(later, "u1") == states(unbroken, "u1")
    for path, assignment in {**before, **assignments}.items():
        assert assignment.action_id == expected[path].action_id or path in {"a", "b"}
    assert not {"a", "b"} & assignments.keys(), "what was published is found"
    assert later.evaluated == [], "verdicts are in the ledger"


def states_now(world: World, uid: str) -> set[str]:
    """The steps that run now."""
    del uid
    return {a.params["tag"] for a in world.attempts()}


def test_a_step_after_another_waits_and_is_cancelled_only_when_that_fails() -> None:
    for state, expected in zip(STATES, ("COMPLETED", "COMPLETED", "CANCELLED"), strict=True):
        world = World()
        world.join("w1")
        late = msgspec.structs.replace(step("late", tag="late"), after=("a",))
        uid = world.submit(plan(source("a", A, state), late), artifacts=[A])
        world.tick(0.5)
        assert "late" not in states_now(world, uid) or state == "SKIPPED"
        drive(world, uid)
        assert states(world, uid)["late"] == expected


def test_an_order_does_not_enter_the_name_of_an_action() -> None:
    world = World()
    world.join("w1")
    plain = step("late", tag="late")
    world.submit(plan(plain), "u1")
    drive(world, "u1")
    ordered = msgspec.structs.replace(plain, after=("a",))
    world.submit(plan(source("a", A, "COMPLETED"), ordered), "u2", artifacts=[A])
    assert "late" not in drive(world, "u2")
    assert world.finals["u2"].steps[1].hits == 1


def test_an_input_that_is_absent_is_not_in_the_name_of_the_action() -> None:
    world = World()
    world.join("w1")
    world.submit(plan(step("use", tag="use")), "u1")
    drive(world, "u1")
    made = made_plan("SKIPPED", "SKIPPED", ALL, ABSENT)
    world.submit(made, "u2", artifacts=[A, B])
    assert "use" not in drive(world, "u2"), "as if the port were not connected"


def test_a_list_of_which_one_is_left_has_the_name_of_that_one() -> None:
    world = World()
    world.join("w1")
    world.submit(
        plan(source("a", A, "COMPLETED"), step("use", rows_of("a"), tag="use")), "u1", artifacts=[A]
    )
    drive(world, "u1")
    world.submit(made_plan("COMPLETED", "SKIPPED", ALL, SKIP), "u2", artifacts=[A, B])
    assert "use" not in drive(world, "u2")


def test_a_row_wise_step_streams_only_from_a_single_source() -> None:
    for edge, streams in (
        (rows_of("a"), True),
        (
            Edge(
                "rows",
                "dataset",
                (StepSource("a", "rows"),),
                when_skipped=EMPTY,
                empty_columns=COLUMNS,
            ),
            True,
        ),
        (joined(ALL, SKIP), False),
        (joined(FIRST, SKIP), False),
    ):
        world = World()
        world.join("w1")
        made = plan(
            source("a", A, "COMPLETED"),
            source("b", B, "SKIPPED"),
            step("use", edge, uses=MAP, tag="use"),
        )
        uid = world.submit(made, artifacts=[A, B])
        world.tick(0.5)
        world.finish(world.attempts()[0].attempt_id)
        assert bool(world.machine.state.runs[uid].steps["use"].streams) is streams
        drive(world, uid)
        assert states(world, uid)["use"] == "COMPLETED"


def test_metrics_that_are_collected_come_with_the_matrix_values_of_their_instances() -> None:
    world = World()
    world.join("w1")
    trials = [
        msgspec.structs.replace(
            step(f"t[i={i}]", when="params.go" if i == 1 else "", tag=f"t{i}", value=i),
            matrix={"i": i},
        )
        for i in range(3)
    ]
    sources = tuple(StepSource(t.path, "metrics") for t in trials)
    edge = Edge("metrics", "metrics", sources, concatenate=True)
    uid = world.submit(plan(*trials, step("rank", edge, tag="rank"), params={"go": False}))
    value = drive(world, uid)["rank"].inputs["metrics"].artifact.value
    assert value is not None
    assert [(e["matrix"], e["metrics"]["value"]) for e in value[INSTANCES]] == [
        ({"i": 0}, 0),
        ({"i": 2}, 2),
    ]


def test_why_says_which_sources_were_used() -> None:
    def shown(first: str, second: str, pick: str, when_skipped: str) -> tuple[Any, ...]:
        made = made_plan(first, second, pick, when_skipped)
        steps = {
            p: StepStatus(p, "e", s, reason="condition" if s == "SKIPPED" else "")  # type: ignore[arg-type]
            for p, s in (("a", first), ("b", second))
        }
        (use,) = input_uses(made.steps[2], steps)
        return use.given, use.skipped, use.instead

    a, b = "a was skipped: condition", "b was skipped: condition"
    assert shown("SKIPPED", "SKIPPED", ALL, ABSENT) == ((), (a, b), "absent")
    assert shown("SKIPPED", "COMPLETED", ALL, SKIP) == (("b.rows",), (a,), "")
    assert shown("COMPLETED", "SKIPPED", FIRST, SKIP) == (("a.rows",), (), "")
    assert shown("RUNNING", "COMPLETED", FIRST, ABSENT) == ((), (), "")
    assert shown("SKIPPED", "SKIPPED", FIRST, SKIP) == ((), (a, b), "")


def test_a_model_is_not_predicted_before_it_is_known_which_one_is_used() -> None:
    """An adapter of a step that may still be skipped is not loaded ahead of work."""
    for when_skipped, first_of, known in ((SKIP, False, True), (SKIP, True, False)):
        world = World()
        world.join("w1", variants=(EngineVariant(ASK.name, dtypes=("float32",)),))
        sources: tuple[Any, ...] = (ArtifactSource("model", f"cas:{BASE.blob}"),)
        if first_of:
            sources = (StepSource("tuned", "model"), *sources)
        ask = msgspec.structs.replace(
            step(
                "ask",
                Edge("model", "model", sources, pick=FIRST, when_skipped=when_skipped),
                Edge("m", "metrics", (StepSource("slow", "metrics"),)),
                uses=ASK,
                tag="ask",
            ),
            fields={"dtype": "float32"},
        )
        tuned = step("tuned", tag="tuned", value=1)
        world.submit(plan(step("slow", tag="slow"), tuned, ask), artifacts=[BASE])
        world.tick(1.0)
        predicted = forecast_demand(world.machine.state, world.now)
        assert bool(predicted) is known


def test_a_revocation_concerns_a_step_by_the_sources_that_it_may_use() -> None:
    made = made_plan("COMPLETED", "COMPLETED", FIRST, SKIP)
    artifacts = {f"cas:{a.blob}": a for a in (A, B)}
    one, two = dataset("made of a"), dataset("made of b")
    both = {"a": {"rows": one}, "b": {"rows": two}}
    assert revoked_steps(made, artifacts, both, {two.digest}) == ["b"]
    assert revoked_steps(made, artifacts, both, {one.digest}) == ["a", "use", "next"]
    open_first = {"b": {"rows": two}}
    assert revoked_steps(made, artifacts, open_first, {two.digest}) == ["b", "use", "next"]


# -- the law ---------------------------------------------------------------------------------------


@st.composite
def workflows(draw: st.DrawFn) -> dict[str, Any]:
    """Steps whose inputs have every form, over sources of which any may be skipped."""
    steps: list[dict[str, Any]] = []
    for n in range(draw(st.integers(2, 6))):
        maps = [f"s{i}.rows" for i, s in enumerate(steps) if s["uses"] == MAP.name]
        every = [f"s{i}.metrics" for i in range(n)]
        one: dict[str, Any] = {"name": f"s{n}", "uses": MAP.name, "with": {"tag": f"s{n}"}}
        if draw(st.booleans()):
            one["when"] = draw(st.sampled_from(["params.yes", "params.no"]))
        if every and draw(st.booleans()):
            one["uses"] = NOOP.name
            names = draw(st.lists(st.sampled_from(every), min_size=1, max_size=3, unique=True))
            form: Any = {"firstOf": names} if draw(st.booleans()) else {"from": names[0]}
            one["inputs"] = {"m": {**form, "whenSkipped": draw(st.sampled_from([SKIP, ABSENT]))}}
        else:
            sources = ["inputs.rows", *maps]
            names = draw(st.lists(st.sampled_from(sources), min_size=1, max_size=3, unique=True))
            form = {"firstOf": names} if draw(st.booleans()) else {"from": names}
            one["inputs"] = {"rows": {**form, "whenSkipped": draw(st.sampled_from([SKIP, EMPTY]))}}
        if n and draw(st.booleans()):
            one["after"] = [f"s{draw(st.integers(0, n - 1))}"]
        steps.append(one)
    return {"steps": steps}


@settings(max_examples=150, deadline=None)
@given(workflows())
def test_no_step_runs_without_an_input_that_the_file_names_as_required(
    spec: dict[str, Any],
) -> None:
    found = build(
        spec["steps"],
        inputs={"rows": {"dataset": "./rows.jsonl"}},
        params={"yes": True, "no": False},
    )
    catalog = Catalog([*(c for c in CONTRACTS if c.name not in (MAP.name, NOOP.name)), *PATHED])
    made = compile_workflow(
        found, catalog, uploads={"rows": f"cas:{A.blob}"}, columns={"rows": COLUMNS}
    )
    world = World()
    world.join("w1")
    uid = world.submit(made, artifacts=[A])
    assignments = drive(world, uid)
    run = world.ended_runs[uid]
    for planned in made.steps:
        (edge,) = planned.edges
        outputs = [o for s in edge.sources if (o := output_of(run, s)) is not None]
        runs = bool(outputs) or edge.when_skipped != SKIP
        wanted = runs and not planned.when.endswith("no")
        assert run.steps[planned.path].state == ("COMPLETED" if wanted else "SKIPPED")
        assignment = assignments.get(planned.path)
        if assignment is None:
            continue
        assert wanted
        given_input = assignment.inputs.get(edge.port)
        if given_input is None:
            assert (outputs, edge.when_skipped) == ([], ABSENT)
        elif edge.kind == "metrics":
            assert given_input.artifact == outputs[0]
        else:
            used = outputs[:1] if edge.pick == FIRST else outputs
            every = [c.rows for a in used if a.manifest for c in a.manifest.chunks]
            assert given_input.artifact.manifest is not None
            assert {c.rows for c in given_input.artifact.manifest.chunks} <= set(every)
            assert bool(every) == bool(given_input.artifact.manifest.chunks)


def output_of(run: Run, source: Any) -> Artifact | None:
    return run.steps[source.step].outputs.get(source.port) if isinstance(source, StepSource) else A
