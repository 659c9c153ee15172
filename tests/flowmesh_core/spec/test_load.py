"""Models and their errors in our words."""

import pytest

from flowmesh_api.v1.enums import Sharing
from flowmesh_api.v1.fabric import CachePolicy
from flowmesh_core.errors import SpecError
from flowmesh_core.spec.load import load_text, parse_object, raise_problems
from flowmesh_core.spec.policy import FlowMeshCachePolicy
from flowmesh_core.spec.workflow import FlowMeshWorkflow

HEAD = "apiVersion: flowmesh.dev/v1alpha1\nkind: FlowMeshWorkflow\nmetadata: {name: x}\n"


def _objects(text: str) -> list[object]:
    loaded, problems = load_text(text)
    raise_problems([*problems, *(p for item in loaded for p in item.problems)])
    return [item.object for item in loaded]


def _messages(text: str) -> list[str]:
    with pytest.raises(SpecError) as caught:
        _objects(text)
    return [f"{p.line}: {p.path}: {p.message}" for p in caught.value.problems]


def _in_spec(line: str) -> list[str]:
    return _messages(f"{HEAD}spec:\n  steps: [{{name: a, uses: test.noop}}]\n  {line}\n")


def _in_step(line: str) -> list[str]:
    return _messages(f"{HEAD}spec:\n  steps:\n  - name: a\n    uses: test.noop\n    {line}\n")


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "uses: test.noop",
            "6: spec.uses: no field 'uses' here; it is a field of an entry of 'steps'",
        ),
        (
            "optimise: cost",
            "6: spec.optimise: no field 'optimise' here; did you mean 'optimize'?",
        ),
        (
            "optimize: cots",
            "6: spec.optimize: expected one of cost, throughput, latency, got the string 'cots'"
            "; did you mean 'cost'?",
        ),
        (
            "budgetUsd: 0.5",
            '6: spec.budgetUsd: expected an amount of dollars in quotes, such as "0.50", '
            "got the number 0.5",
        ),
        (
            'budgetUsd: "five"',
            '6: spec.budgetUsd: expected an amount of dollars in quotes, such as "0.50", '
            "got the string 'five'",
        ),
        (
            'priority: "1"',
            "6: spec.priority: expected an integer, got the string '1'; write it without quotes",
        ),
        ("priority: high", "6: spec.priority: expected an integer, got the string 'high'"),
        ("priority: 1.5", "6: spec.priority: expected an integer, got the number 1.5"),
        ("priority: 1e300", "6: spec.priority: expected an integer, got the number 1e+300"),
        ("suspend: 1", "6: spec.suspend: expected true or false, got the number 1"),
        (
            "deadline: soon",
            "6: spec.deadline: expected a duration such as 90s, 30m, 12h or 30d, "
            "got the string 'soon'",
        ),
        ("inputs: [a]", "6: spec.inputs: expected a mapping, got a list"),
        (
            "weights: {alpha: 1, beta: 2}",
            "6: spec.weights.gamma: is required: weight of input locality: of input data that is "
            "already on or near the worker",
        ),
        (
            "weights: {alpha: -1, beta: 2, gamma: 0}",
            "6: spec.weights.alpha: expected at least 0, got the number -1",
        ),
        (
            "outputs: {a b: a.metrics}",
            '6: spec.outputs["a b"]: expected a name of letters, digits, - and _ (at most 63, a '
            "letter or digit first), got the string 'a b'",
        ),
    ],
)
def test_an_invalid_field_of_the_spec_is_reported_in_our_own_wording(
    line: str, expected: str
) -> None:
    assert _in_spec(line) == [expected]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "retry: {attemps: 3}",
            "8: spec.steps[0].retry.attemps: no field 'attemps' here; did you mean 'attempts'?",
        ),
        (
            "retry: {attempts: 0}",
            "8: spec.steps[0].retry.attempts: expected at least 1, got the number 0",
        ),
        (
            "cache: {reuse: sometimes}",
            "8: spec.steps[0].cache.reuse: expected one of always, run, never, "
            "got the string 'sometimes'",
        ),
        (
            "resources: {memory: 4096}",
            "8: spec.steps[0].resources.memory: expected an amount of memory such as 4Gi or 512Mi, "
            "got the number 4096",
        ),
        (
            "when: true",
            "8: spec.steps[0].when: expected a string, got the boolean true; put it in quotes",
        ),
    ],
)
def test_an_invalid_field_of_a_step_is_reported_in_our_own_wording(
    line: str, expected: str
) -> None:
    assert _in_step(line) == [expected]


def test_all_errors_of_all_documents_are_reported_at_once_in_line_order() -> None:
    text = f"{HEAD}spec:\n  steps: []\n  priorty: 1\n---\nkind: FlowMeshWorkfow\n---\n- 1\n"
    assert _messages(text) == [
        "5: spec.steps: expected at least 1 entry",
        "6: spec.priorty: no field 'priorty' here; did you mean 'priority'?",
        "8: kind: no kind 'FlowMeshWorkfow'; did you mean 'FlowMeshWorkflow'?",
        "10: : expected an object with apiVersion and kind, got a list",
    ]


def test_a_refused_scalar_is_reported_once_and_not_again_as_a_wrong_type() -> None:
    (message,) = _in_spec("priority: 010")
    assert message.startswith("6: spec.priority: 010 is an octal number in YAML 1.1")


def test_an_empty_file_is_reported() -> None:
    assert _messages("# nothing\n") == ["1: : the file holds no object"]


def test_the_valid_part_of_an_invalid_object_can_still_be_checked() -> None:
    (loaded,), _ = load_text(
        f"{HEAD}spec:\n  steps:\n  - {{name: a, uses: test.noop, retyr: 1}}\n  - {{name: b}}\n"
    )
    assert isinstance(loaded.object, FlowMeshWorkflow)
    assert [s.name for s in loaded.object.spec.steps] == ["a", "b"]
    assert len(loaded.problems) == 2


def test_a_step_with_an_invalid_name_has_a_stand_in_and_the_notes_have_its_name() -> None:
    (loaded,), _ = load_text(f"{HEAD}spec:\n  steps:\n  - {{name: 'a b', uses: test.noop}}\n")
    assert isinstance(loaded.object, FlowMeshWorkflow)
    assert [s.name for s in loaded.object.spec.steps] == ["unnamed-step-0"]
    assert loaded.object.notes.step_names == {"a b"}
    assert len(loaded.problems) == 1


def test_no_object_is_loaded_where_there_are_no_steps_to_check() -> None:
    (loaded,), _ = load_text(f"{HEAD}spec:\n  steps: {{}}\n")
    assert loaded.object is None


def test_an_object_is_read_with_the_fields_that_the_api_server_adds() -> None:
    found = parse_object(
        {
            "apiVersion": "flowmesh.dev/v1alpha1",
            "kind": "FlowMeshWorkflow",
            "metadata": {
                "name": "x",
                "namespace": "team-a",
                "uid": "1",
                "resourceVersion": "2",
                "generation": 1,
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "managedFields": [{"manager": "kubectl"}],
            },
            "spec": {"steps": [{"name": "a", "uses": "test.noop"}]},
            "status": {"phase": "Running", "somethingNew": 1},
        }
    )
    assert isinstance(found, FlowMeshWorkflow)
    assert found.metadata.namespace == "team-a"


POLICY = "apiVersion: flowmesh.dev/v1alpha1\nkind: FlowMeshCachePolicy\nmetadata: {name: p}\n"


def test_a_policy_object_is_converted_to_a_cache_policy() -> None:
    (policy,) = _objects(
        f"{POLICY}spec: {{scope: group, group: g, ttl: 2d, salt: s, namespaces: "
        "{names: [team-a, '*'], selector: {matchLabels: {a: b}}}}"
    )
    assert isinstance(policy, FlowMeshCachePolicy)
    assert policy.rule() == CachePolicy(
        "p", Sharing.GROUP, "g", ("team-a", "*"), {"a": "b"}, "s", 172_800.0
    )


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("{scope: all, namespaces: {}}", "namespaces: names or selector must be given"),
        ("{scope: group, namespaces: {names: [a]}}", "group is required where scope is group"),
        ("{scope: all, group: g, namespaces: {names: [a]}}", "group is required where scope"),
        ("{scope: all, ttl: 0s, namespaces: {names: [a]}}", "0 is not a limit"),
    ],
)
def test_cross_field_rules_of_a_policy_are_enforced(spec: str, expected: str) -> None:
    (message,) = _messages(f"{POLICY}spec: {spec}\n")
    assert expected in message
