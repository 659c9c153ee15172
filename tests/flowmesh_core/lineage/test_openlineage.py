"""The events are read back by the official client's classes, which refuse unknown fields."""

import importlib
import pkgutil
from typing import Any

import attr
import pytest
from openlineage.client import generated
from openlineage.client.generated import base
from openlineage.client.serde import Serde
from tests.flowmesh_core.machine.world import MAP, NOOP, World, after, dataset, plan, rows_of, step

from flowmesh_core.errors import FailureKind
from flowmesh_core.graph.plan import Edge, StepSource
from flowmesh_core.lineage import ExportInput, run_events

FACETS = {
    kind._get_schema(): kind
    for module in pkgutil.iter_modules(generated.__path__)
    for kind in vars(importlib.import_module(f"{generated.__name__}.{module.name}")).values()
    if isinstance(kind, type) and issubclass(kind, base.BaseFacet)
}


@pytest.fixture(scope="module")
def events() -> list[dict[str, Any]]:
    world = World()
    world.join("w1")
    data = dataset("a", "b")
    steps = (step("map", rows_of(data), uses=MAP), step("then", *after("map"), uses=NOOP))
    world.submit(plan(*steps, name="flow", deadline_s=60.0), "u1", artifacts=[data])
    world.run()
    return exported(world, "u1")


def exported(world: World, uid: str) -> list[dict[str, Any]]:
    run = world.ended_runs[uid]
    status = world.finals[uid]
    return run_events(ExportInput(status, run.plan, run.artifacts, run.lines, "1.2.3"))


def facets(given: dict[str, Any]) -> dict[str, Any]:
    return {name: facet(value) for name, value in given.items()}


def facet(given: dict[str, Any]) -> Any:
    fields = dict(given)
    schema, producer = fields.pop("_schemaURL"), fields.pop("_producer")
    if schema not in FACETS:
        assert schema.startswith(producer)
        return base.BaseFacet(producer=producer).with_additional_properties(**fields)
    return FACETS[schema](producer=producer, **fields)


def read(event: dict[str, Any]) -> base.RunEvent:
    run, job = event["run"], event["job"]
    return base.RunEvent(
        eventType=base.EventType(event["eventType"]),
        eventTime=event["eventTime"],
        producer=event["producer"],
        run=base.Run(run["runId"], facets(run["facets"])),
        job=base.Job(job["namespace"], job["name"], facets(job["facets"])),
        inputs=[
            base.InputDataset(
                d["namespace"],
                d["name"],
                facets=facets(d["facets"]),
                inputFacets=facets(d.get("inputFacets", {})),
            )
            for d in event["inputs"]
        ],
        outputs=[
            base.OutputDataset(
                d["namespace"],
                d["name"],
                facets=facets(d["facets"]),
                outputFacets=facets(d["outputFacets"]),
            )
            for d in event["outputs"]
        ],
    )


def test_every_event_is_one_that_the_official_client_would_send(
    events: list[dict[str, Any]],
) -> None:
    for event in events:
        sent = Serde.to_dict(read(event))
        assert sent["schemaURL"] == event["schemaURL"]
        assert attr.has(type(read(event)))
        for part in ("run", "job"):
            assert set(sent[part]["facets"]) == set(event[part]["facets"])
            for name, given in event[part]["facets"].items():
                assert sent[part]["facets"][name]["_schemaURL"] == given["_schemaURL"] or (
                    name.startswith("flowmesh_")
                )


def test_a_field_unknown_to_the_specification_is_refused(
    events: list[dict[str, Any]],
) -> None:
    spoiled = dict(events[0]["run"]["facets"]["nominalTime"], flowmesh=1)
    with pytest.raises(TypeError):
        facet(spoiled)


def test_steps_are_children_of_the_run_and_their_datasets_meet(
    events: list[dict[str, Any]],
) -> None:
    kinds = [(e["eventType"], e["job"]["name"]) for e in events]
    assert kinds[0] == ("START", "flow")
    assert kinds[-1] == ("COMPLETE", "flow")
    assert ("COMPLETE", "flow.map") in kinds
    ends = {e["job"]["name"]: e for e in events if e["eventType"] == "COMPLETE"}
    parent = ends["flow.then"]["run"]["facets"]["parent"]
    assert parent["run"]["runId"] == events[0]["run"]["runId"]
    made = {d["name"]: d for d in ends["flow.map"]["outputs"]}
    [used] = ends["flow.then"]["inputs"]
    assert used["name"] in made
    rows = next(d for d in made.values() if "schema" in d["facets"])
    assert rows["facets"]["schema"]["fields"] == [{"name": "text", "type": "string"}]
    assert rows["facets"]["version"]["datasetVersion"] == rows["name"]
    assert rows["outputFacets"]["outputStatistics"]["rowCount"] == 2


def test_a_failed_step_is_an_event_with_its_message() -> None:
    world = World()
    world.join("w1")
    world.submit(plan(step("bad"), name="flow"), "u1")
    world.tick(0.5)
    [attempt] = world.attempts()
    world.fail(attempt.attempt_id, FailureKind.BAD_INPUT, message="no such column")
    ends = {e["job"]["name"]: e for e in exported(world, "u1") if e["eventType"] == "FAIL"}
    assert set(ends) == {"flow", "flow.bad"}
    assert ends["flow.bad"]["run"]["facets"]["errorMessage"]["message"] == "no such column"
    assert read(ends["flow.bad"]).eventType is base.EventType.FAIL


def test_the_same_run_is_exported_under_the_same_ids() -> None:
    world = World()
    world.join("w1")
    world.submit(plan(step("one"), name="flow"), "u1")
    world.run()
    assert exported(world, "u1") == exported(world, "u1")


def test_a_data_set_has_the_name_of_the_step_that_made_it_beside_a_skipped_one() -> None:
    world = World()
    world.join("w1")
    data = dataset("a")
    steps = (
        step("no", rows_of(data), uses=MAP, when="false"),
        step("yes", rows_of(data), uses=MAP),
        step(
            "both",
            Edge(
                "rows",
                "dataset",
                (StepSource("no", "rows"), StepSource("yes", "rows")),
                concatenate=True,
            ),
            uses=MAP,
        ),
    )
    world.submit(plan(*steps, name="flow"), "u1", artifacts=[data])
    world.run()
    found = exported(world, "u1")
    (end,) = (e for e in found if e["job"]["name"] == "flow.both" and e["eventType"] == "COMPLETE")
    symlinks = [given["facets"]["symlinks"]["identifiers"] for given in end["inputs"]]
    assert [[i["name"] for i in identifiers] for identifiers in symlinks] == [["flow/yes.rows"]]
