"""Forecasts of workflows whose sources were resolved before."""

from typing import Any

import pytest

from flowmesh_api.v1.runs import ResolvedSource
from flowmesh_control.queries.resolved_sources import fetch_bytes, with_pins
from flowmesh_control.runs.admission import Compiled
from flowmesh_core.catalog.plugins import load_catalog
from flowmesh_core.graph.compile import compile_workflow
from flowmesh_core.graph.plan import ArtifactSource
from flowmesh_core.identity import canonical_bytes, digest_bytes
from flowmesh_core.protocol.results import content_artifact
from flowmesh_core.sharing.scopes import plan_scopes
from flowmesh_core.spec.load import parse_object
from flowmesh_core.spec.workflow import FlowMeshWorkflow

URI = "hf://datasets/openai/gsm8k@main"
FILE: dict[str, Any] = {"uri": "https://host/rows.jsonl", "revision": "etag", "size": 17}
PART: dict[str, Any] = {
    "uri": URI,
    "revision": "b" * 40,
    "config": "main",
    "split": "",
    "files": [["a.parquet", 3], ["b.parquet", 4]],
}
MODEL: dict[str, Any] = {"uri": "hf://org/model@main", "revision": "b" * 40}


def pin_of(found: dict[str, Any]) -> ResolvedSource:
    files = [(name, size) for name, size in found.get("files", ())]
    return ResolvedSource(**{**found, **({"files": files} if files else {})})


@pytest.mark.parametrize(("found", "size"), [(FILE, 17), (PART, 7), (MODEL, 0)])
def test_an_import_reads_the_pin_that_its_run_would_make(found: dict[str, Any], size: int) -> None:
    compiled = workflow()
    resolved = with_pins(compiled, {"rows": pin_of(found)})
    before = {s.path: s for s in compiled.plan.steps}
    after = {s.path: s for s in resolved.plan.steps}
    assert after["inputs.rows.pin"] == before["inputs.rows.pin"]  # the run resolves again
    ((source,),) = (edge.sources for edge in after["inputs.rows"].edges)
    assert isinstance(source, ArtifactSource)
    content = canonical_bytes(found)  # as the engine writes it
    made = content_artifact("blob", digest_bytes(content), len(content))
    assert resolved.artifacts[source.reference] == made
    assert fetch_bytes(pin_of(found)) == size


def test_what_was_not_resolved_stays_as_it_was() -> None:
    compiled = workflow()
    other = with_pins(compiled, {"other": pin_of(FILE)})
    assert other.plan == compiled.plan


def workflow() -> Compiled:
    steps = [
        {
            "name": "a",
            "uses": "data.sql",
            "inputs": {"rows": "inputs.rows"},
            "with": {"query": "select * from rows"},
        }
    ]
    document = {
        "apiVersion": "flowmesh.dev/v1alpha1",
        "kind": "FlowMeshWorkflow",
        "metadata": {"name": "w"},
        "spec": {"inputs": {"rows": {"dataset": URI}}, "steps": steps},
    }
    found = parse_object(document)
    assert isinstance(found, FlowMeshWorkflow)
    plan = compile_workflow(found, load_catalog())
    return Compiled({}, plan, plan_scopes([], "team-a"), {}, {})
