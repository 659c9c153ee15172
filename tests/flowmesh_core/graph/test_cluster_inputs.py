"""What only a cluster has: ConfigMaps and Secrets as a workflow names them, objects to delete."""

import pytest
from tests.flowmesh_core.graph.steps import GENERATE, INPUTS

from flowmesh_core.errors import SpecError
from flowmesh_core.graph.plan import ArtifactSource
from flowmesh_core.spec.load import parse_object
from flowmesh_core.spec.secrets import SecretLocation
from flowmesh_core.spec.workflow import FlowMeshWorkflow

QUESTIONS = {"q": {"configMap": {"name": "questions", "key": "questions.jsonl"}}}
READ = {"uses": "data.sql", "inputs": {"rows": "inputs.q"}, "with": {"query": "select * from rows"}}
UPLOADED = f"cas:dataset:{'1' * 64}.{'2' * 34}"
HUB = {**INPUTS, "base": {"model": "hf://org/name", "secrets": ["HF_TOKEN"]}}
USE = GENERATE


def test_a_config_map_input_is_a_data_set_stored_by_the_operator(compiled) -> None:
    plan = compiled(READ, inputs=QUESTIONS, uploads={"q": UPLOADED}, validate_only=False)
    (edge,) = plan.steps[0].edges
    assert edge.sources == (ArtifactSource("dataset", UPLOADED),)


def test_the_columns_of_a_config_map_are_known_to_the_compiler(problems) -> None:
    generate = {
        "uses": "llm.generate",
        "inputs": {"model": "inputs.base", "rows": "inputs.q"},
        "with": {"prompt": "{{ qestion }}"},
    }
    inputs = {**QUESTIONS, "base": {"model": "smollm2-135m-instruct"}}
    found = problems(generate, inputs=inputs, columns={"q": ["question"]})
    assert "did you mean 'question'?" in found["spec.steps[0].with.prompt"]


def test_outside_a_cluster_a_config_map_is_refused_with_a_file_as_remedy(problems) -> None:
    assert problems(READ, inputs=QUESTIONS) == {}, "the file is right for a cluster"
    assert problems(READ, inputs=QUESTIONS, validate_only=False) == {
        "spec.inputs.q.configMap": "questions/questions.jsonl is in a ConfigMap, which only a"
        " cluster's operator reads; here write dataset: ./questions.jsonl"
    }


def test_the_key_determines_the_format_of_the_rows(compiled) -> None:
    with pytest.raises(SpecError, match=r"expected a key that ends in \.jsonl"):
        compiled(READ, inputs={"q": {"configMap": {"name": "questions", "key": "questions"}}})


def test_a_plan_contains_the_location_of_a_secret(compiled) -> None:
    kept = {"HF_TOKEN": {"name": "hub", "key": "token"}, "api-key": {"name": "api", "key": "k"}}
    step = {**USE, "secrets": ["api-key", "other"]}
    plan = compiled(step, inputs=HUB, secrets=kept)
    by_path = {s.path: s.secrets for s in plan.steps}
    assert by_path["inputs.base.pin"] == by_path["inputs.base"] == ("HF_TOKEN=hub/token",)
    assert by_path["a"] == ("api-key=api/k", "other")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("HF_TOKEN=hub/token", SecretLocation("HF_TOKEN", "hub", "token")),
        ("HF_TOKEN", SecretLocation("HF_TOKEN", "hf-token")),
        ("api-key", SecretLocation("api-key", "api-key")),
    ],
)
def test_a_secret_without_a_location_is_the_object_of_its_name(text: str, place: object) -> None:
    assert SecretLocation.parse(text) == place


def test_neither_a_secrets_location_nor_the_time_to_live_changes_the_steps(compiled) -> None:
    kept = {"HF_TOKEN": {"name": "hub", "key": "token"}}
    plain = compiled(USE, inputs=HUB)
    more = compiled(USE, inputs=HUB, secrets=kept, ttlSecondsAfterFinished=3600)
    assert [s.params for s in plain.steps] == [s.params for s in more.steps]
    assert [s.cache for s in plain.steps] == [s.cache for s in more.steps]
    assert compiled(USE, inputs=HUB, ttlSecondsAfterFinished=0) == plain


def test_a_status_of_another_version_does_not_invalidate_the_object() -> None:
    found = parse_object(
        {
            "apiVersion": "flowmesh.dev/v1alpha1",
            "kind": "FlowMeshWorkflow",
            "metadata": {"name": "w"},
            "spec": {"steps": [{"name": "a", "uses": "test.noop"}]},
            "status": {"phase": 7, "hits": "many", "conditions": "none"},
        }
    )
    assert isinstance(found, FlowMeshWorkflow)
    assert found.status is None
