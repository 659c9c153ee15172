"""A step that names an input does not run without it, whatever its engine could do without.

The workflows are compiled from what an author writes and then run by the machine.
"""

from typing import Any

from tests.flowmesh_core.graph.conftest import build
from tests.flowmesh_core.machine.world import (
    ASK,
    CONTRACTS,
    MAP,
    World,
    dataset,
    plan,
    rows_of,
    step,
)

from flowmesh_api.v1.runs import StepStatus
from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.graph.compile import compile_workflow
from flowmesh_core.graph.plan import Edge, StepSource
from flowmesh_core.identity.digest import digest_bytes
from flowmesh_core.protocol.messages import EngineVariant
from flowmesh_core.protocol.results import Artifact

BASE = Artifact("model", digest_bytes(b"base"), digest_bytes(b"base"), 10)
ROWS = dataset("one")


def run(world: World, *, tuned: bool, **inputs: str) -> dict[str, StepStatus]:
    """Trains an adapter if so asked, answers with it and with the base alone: steps at the end."""
    steps: list[dict[str, Any]] = [
        {"name": "seen"},
        {
            "name": "tune",
            "uses": "test.tune",
            "inputs": {"metrics": "seen.metrics"},
            "when": "params.tuned",
        },
        {"name": "plain", "uses": "test.ask", "inputs": {"model": "inputs.base"}},
        {"name": "answer", "uses": "test.ask", "inputs": {"model": "inputs.base", **inputs}},
        {"name": "report", "inputs": {"answer": "answer.metrics"}},
    ]
    found = build(
        [{**s, "with": {"dtype": "float32"}} if s.get("uses") == ASK.name else s for s in steps],
        inputs={"base": {"model": "./base"}},
        params={"tuned": tuned},
        outputs={"report": "report.metrics"},
    )
    made = compile_workflow(found, Catalog(CONTRACTS), uploads={"base": f"cas:{BASE.blob}"})
    world.join("w1", variants=(EngineVariant(ASK.name, dtypes=("float32",)),))
    uid = world.submit(made, artifacts=[BASE])
    world.run()
    assert world.finals[uid].phase == "Succeeded"
    return {s.path: s for s in world.finals[uid].steps}


def test_an_adapter_from_a_skipped_step_skips_the_step_that_names_it(world: World) -> None:
    steps = run(world, tuned=False, adapter="tune.adapter")
    assert {p: s.state for p, s in steps.items()} == {
        "seen": "COMPLETED",
        "tune": "SKIPPED",
        "plain": "COMPLETED",
        "answer": "SKIPPED",
        "report": "SKIPPED",
    }
    assert steps["tune"].reason == "condition"
    assert steps["answer"].reason == "input skipped: adapter from tune"
    assert steps["report"].reason == "input skipped: answer from answer"


def test_an_adapter_that_was_trained_is_used(world: World) -> None:
    steps = run(world, tuned=True, adapter="tune.adapter")
    assert {s.state for s in steps.values()} == {"COMPLETED"}
    assert steps["answer"].executed == steps["plain"].executed == 1


def test_an_unconnected_port_stays_optional(world: World) -> None:
    steps = run(world, tuned=False)
    assert steps["answer"].state == "COMPLETED"


def test_the_reason_counts_the_sources_of_a_concatenation(world: World) -> None:
    world.join("w1")
    parts = [step(f"m[i={i}]", rows_of(ROWS), uses=MAP, when="params.go", i=i) for i in range(3)]
    sources = tuple(StepSource(p.path, "rows") for p in parts)
    joined = step("all", Edge("rows", "dataset", sources, concatenate=True), uses=MAP)
    uid = world.submit(plan(*parts, joined, params={"go": False}), artifacts=[ROWS])
    world.run()
    assert world.finals[uid].steps[-1].reason == "input skipped: rows from m[i=0] and 2 more"
