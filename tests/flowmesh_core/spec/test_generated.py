"""The generated files, and what Kubernetes asks of a custom resource's schema."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import celpy
import jsonschema
import pytest
from celpy.adapter import json_to_cel
from ruamel.yaml import YAML
from tests.flowmesh_core.graph.parameter_places import PLACES, WRITTEN, as_plan, with_parameters

from flowmesh_core.spec.generate import files, main, outdated, write
from flowmesh_core.spec.resources import definitions, editor_schema
from flowmesh_core.spec.workflow import (
    IMMUTABLE_FIELDS,
    LARGE_FIELDS,
    MUTABLE_FIELDS,
    PARAMETER_TERMS,
    WorkflowSpec,
)

ROOT = Path(__file__).parents[3]


def _schema(plural: str) -> dict[str, Any]:
    found: dict[str, Any] = definitions()[plural]["spec"]["versions"][0]["schema"]
    return found["openAPIV3Schema"]


def test_the_generated_files_are_up_to_date() -> None:
    assert outdated(ROOT) == [], "run `make generate`"


def test_an_outdated_file_is_reported_and_rewritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path)
    assert main(["--check"], tmp_path) == 0
    (tmp_path / "crds/flowmeshworkflows.yaml").write_text("old")
    assert main(["--check"], tmp_path) == 1
    assert "crds/flowmeshworkflows.yaml is out of date" in capsys.readouterr().err
    assert main([], tmp_path) == 0
    assert main(["--check"], tmp_path) == 0


def test_the_files_are_yaml_and_json_of_the_definitions() -> None:
    content = files()
    for name, definition in definitions().items():
        assert YAML(typ="safe").load(content[f"crds/{name}.yaml"]) == definition
    assert json.loads(content["docs/schema.json"]) == editor_schema()


def test_the_chart_s_schema_of_a_pool_has_its_fields_but_requires_no_image() -> None:
    schema = json.loads(files()["charts/flowmesh/values.schema.json"])["definitions"]["pool"]
    spec = _schema("flowmeshworkerpools")["properties"]["spec"]
    assert list(schema["properties"]) == list(spec["properties"])
    assert (schema["additionalProperties"], schema["required"]) == (False, [])
    in_template = schema["properties"]["podTemplate"]["properties"]["spec"]["properties"]
    assert in_template["affinity"] == {"type": "object"}, "what Kubernetes defines stays open"


PRESERVE = "x-kubernetes-preserve-unknown-fields"
INT_OR_STRING = "x-kubernetes-int-or-string"
ALLOWED = {"type", "description", "enum", "pattern", "format", "required", PRESERVE, INT_OR_STRING}
ALLOWED |= {"minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"}
ALLOWED |= {"minProperties", "maxProperties", "properties", "items", "additionalProperties"}
ALLOWED |= {f"x-kubernetes-{key}" for key in ("list-map-keys", "list-type", "validations")}


def structural_problems(schema: Any, where: str = "schema") -> Iterator[str]:
    """Yields what Kubernetes would refuse in a schema.

    Args:
        schema: the schema.
        where: its place, for the messages.
    """
    unknown = set(schema) - ALLOWED
    if unknown:
        yield f"{where}: {', '.join(sorted(unknown))} is not allowed"
    if "type" not in schema and not (schema.get(PRESERVE) or schema.get(INT_OR_STRING)):
        yield f"{where}: has no type"
    kind = schema.get("type")
    if "properties" in schema and "additionalProperties" in schema:
        yield f"{where}: has both properties and additionalProperties"
    if kind == "object" and not {"properties", "additionalProperties", PRESERVE} & set(schema):
        yield f"{where}: an object without properties is pruned to nothing"
    missing = set(schema.get("required", ())) - set(schema.get("properties", {}))
    if missing:
        yield f"{where}: requires {', '.join(sorted(missing))}, which is not a property"
    if kind == "array":
        yield from structural_problems(schema["items"], f"{where}[]")
    if isinstance(schema.get("additionalProperties"), Mapping):
        yield from structural_problems(schema["additionalProperties"], f"{where}.*")
    for name, inner in schema.get("properties", {}).items():
        yield from structural_problems(inner, f"{where}.{name}")


@pytest.mark.parametrize(
    "plural",
    sorted(definitions()),
)
def test_the_schemas_are_structural(plural: str) -> None:
    schema = _schema(plural)
    del schema["properties"]["metadata"]  # the API server knows it
    assert list(structural_problems(schema)) == []


@pytest.mark.parametrize(
    "schema",
    [
        {"description": "no type"},
        {"type": "object"},
        {"type": "object", "properties": {"a": {"anyOf": []}}},
        {"type": "object", "properties": {"a": {"$ref": "#/x"}}},
        {"type": "array", "items": {}},
        {"type": "object", "properties": {}, "required": ["a"]},
        {"type": "object", "properties": {}, "additionalProperties": {"type": "string"}},
        {"type": "string", "default": "x"},
    ],
)
def test_schemas_that_kubernetes_would_refuse_are_detected(schema: dict[str, Any]) -> None:
    assert list(structural_problems(schema))


def test_every_field_has_a_description_for_kubectl_explain() -> None:
    def undescribed(schema: dict[str, Any], where: str) -> Iterator[str]:
        for name, inner in schema.get("properties", {}).items():
            if "description" not in inner:
                yield f"{where}.{name}"
            yield from undescribed(inner, f"{where}.{name}")
        if "items" in schema:
            yield from undescribed(schema["items"], f"{where}[]")

    for plural in definitions():
        for part in ("spec", "status"):
            assert list(undescribed(_schema(plural)["properties"].get(part, {}), part)) == []


def test_every_field_of_the_spec_is_either_mutable_or_guarded() -> None:
    names = {f.alias or n for n, f in WorkflowSpec.model_fields.items()}
    assert names == {*IMMUTABLE_FIELDS, *MUTABLE_FIELDS}


def _holds(rule: str, new: Any, old: Any = None) -> bool:
    env = celpy.Environment()
    names = {"self": json_to_cel(new)} | ({} if old is None else {"oldSelf": json_to_cel(old)})
    return bool(env.program(env.compile(rule)).evaluate(names))


def test_the_immutability_rules_refuse_changes_and_allow_amendments() -> None:
    rules = _schema("flowmeshworkflows")["properties"]["spec"]["x-kubernetes-validations"]
    of_change = [r["rule"] for r in rules if "oldSelf" in r["rule"]]
    immutable = set(IMMUTABLE_FIELDS) - set(LARGE_FIELDS)
    assert len(of_change) == len(immutable) + len(PARAMETER_TERMS)
    old = {"steps": [{"name": "a"}], "params": {"x": 1}, "priority": 0}
    amended = {**old, "priority": 5, "suspend": True, "budgetUsd": "1", "deadline": "1h"}
    assert all(_holds(r, amended, old) for r in of_change)
    for changed in ({"params": {"x": 2}}, {"outputs": {"o": "a.rows"}}):
        assert not all(_holds(r, {**old, **changed}, old) for r in of_change)
    without = {k: v for k, v in old.items() if k != "params"}
    assert not all(_holds(r, without, old) for r in of_change)
    for name in PARAMETER_TERMS:
        filled = {**old, name: "${params.x}"}
        assert all(_holds(r, {**filled, "priority": 1}, filled) for r in of_change)
        assert all(_holds(r, amended, filled) for r in of_change)
        assert not all(_holds(r, filled, old) for r in of_change)


def test_the_rule_of_inputs_allows_one_address_and_does_not_see_rows() -> None:
    inputs = _schema("flowmeshworkflows")["properties"]["spec"]["properties"]["inputs"]
    (rule,) = inputs["additionalProperties"]["x-kubernetes-validations"]
    assert _holds(rule["rule"], {"model": "m"})
    assert _holds(rule["rule"], {"rows": [], "secrets": []})
    assert not _holds(rule["rule"], {"model": "m", "dataset": "d"})
    assert not _holds(rule["rule"], {"model": "m", "configMap": {}})


def test_the_rules_of_policies_agree_with_the_models() -> None:
    spec = _schema("flowmeshcachepolicies")["properties"]["spec"]
    (rule,) = spec["x-kubernetes-validations"]
    assert _holds(rule["rule"], {"scope": "group", "group": "g"})
    assert not _holds(rule["rule"], {"scope": "group"})
    assert not _holds(rule["rule"], {"scope": "all", "group": "g"})
    (rule,) = spec["properties"]["namespaces"]["x-kubernetes-validations"]
    assert _holds(rule["rule"], {"selector": {"matchLabels": {"a": "b"}}})
    assert not _holds(rule["rule"], {"names": []})


def test_kubectl_shows_phase_progress_hits_cost_and_age() -> None:
    definition = definitions()["flowmeshworkflows"]
    (version,) = definition["spec"]["versions"]
    columns = [c for c in version["additionalPrinterColumns"] if not c.get("priority")]
    assert [c["name"] for c in columns] == ["Phase", "Progress", "Hits", "Cost", "Age"]
    status = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    shown = [c["jsonPath"].split(".")[2] for c in columns if c["jsonPath"].startswith(".status.")]
    assert set(shown) <= set(status)
    assert definition["spec"]["names"]["shortNames"] == ["fmw"]
    assert version["subresources"] == {"status": {}}
    policies = definitions()["flowmeshcachepolicies"]["spec"]
    assert policies["names"]["shortNames"] == ["fmcp"]
    assert policies["scope"] == "Cluster"


def _accepts(schema: Mapping[str, Any], value: Any) -> bool:
    """Whether an API server would take a value: by type, bounds and pattern, without pruning."""
    plain = {k: v for k, v in schema.items() if not k.startswith("x-")}
    if schema.get(INT_OR_STRING):
        plain["type"] = ["integer", "string"]
    if isinstance(value, dict) and "properties" in schema:
        inner, known = {**value}, schema["properties"]
        return not set(inner) - set(known) and all(_accepts(known[k], v) for k, v in inner.items())
    if isinstance(value, dict) and isinstance(schema.get("additionalProperties"), Mapping):
        return all(_accepts(schema["additionalProperties"], v) for v in value.values())
    if isinstance(value, list) and "items" in schema:
        return schema["type"] == "array" and all(_accepts(schema["items"], v) for v in value)
    return bool(jsonschema.Draft202012Validator(plain).is_valid(value))


@pytest.mark.parametrize("place", PLACES, ids=lambda p: ".".join(map(str, p)))
def test_a_parameter_may_stand_in_its_place_in_an_object_and_in_an_editor(
    place: tuple[Any, ...],
) -> None:
    spec = _schema("flowmeshworkflows")["properties"]["spec"]
    given = with_parameters([place])
    assert _accepts(spec, WRITTEN)
    assert _accepts(spec, given)
    document = {"apiVersion": "flowmesh.dev/v1alpha1", "kind": "FlowMeshWorkflow"}
    document |= {"metadata": {"name": "w"}, "spec": given}
    editor = jsonschema.Draft202012Validator(editor_schema())
    assert [e.message for e in editor.iter_errors(document)] == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"budgetUsd": "five"},
        {"budgetUsd": "${matrix.b}"},
        {"budgetUsd": "$params.b"},
        {"deadline": "${params.}"},
        {"priority": "${params.p}"},
        {"inputs": {"q": {"limit": "ten"}}},
        {"inputs": {"q": {"limit": 0}}},
    ],
    ids=str,
)
def test_other_texts_are_still_refused_in_an_object(wrong: dict[str, Any]) -> None:
    assert not _accepts(_schema("flowmeshworkflows")["properties"]["spec"], wrong)


def test_services_have_no_parameters() -> None:
    spec = _schema("flowmeshservices")["properties"]["spec"]
    assert "params" not in json.dumps(spec["properties"]["inputs"])
    assert not _accepts(spec, {"inputs": {"q": {"limit": "${params.n}"}}})


def test_an_object_with_parameters_has_the_plan_of_the_file_after_a_round_trip() -> None:
    """JSON is what the API server stores, and it drops no field of these."""
    apart = [p for p in PLACES if not any(o != p and o == p[: len(o)] for o in PLACES)]
    given = with_parameters(apart)
    stored = json.loads(json.dumps(given, sort_keys=True))
    assert as_plan(stored).steps == as_plan(given).steps == as_plan(WRITTEN).steps
