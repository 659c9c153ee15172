"""Refusals of the chart's admission policies on a real API server, with their messages."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from tests.flowmesh_operator.api_server import ROOT, ApiServer, running, until
from tests.flowmesh_operator.objects import STEP, text, workflow

from flowmesh_core.spec.size import MOST_OBJECT_BYTES

pytestmark = pytest.mark.slow

TEMPLATE = ROOT / "charts" / "flowmesh" / "templates" / "admission-policy.yaml"
OPERATORS = "flowmesh-system"
LIMIT = "flowmesh.dev/max-budget-usd"
DATA = {"dataset": "https://example.com/q.jsonl"}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApiServer]:
    """Yields a separate server, since its policies would affect other tests."""
    with running(tmp_path_factory.mktemp("guarded")) as server:
        server.kubectl("apply", "-f", "-", given=rendered())
        server.kubectl("create", "namespace", OPERATORS)
        probe = workflow("probe", inputs={"x": {"dataset": "./probe"}})
        until(lambda: not accepted(server, "default", probe), "the policies hold")
        yield server


def rendered() -> str:
    """Returns the template as Helm renders it: its only value is the release's namespace."""
    plain = re.sub(r"^\s*\{\{-? .*\}\}\n", "", TEMPLATE.read_text(), flags=re.MULTILINE)
    return plain.replace("{{ .Release.Namespace }}", OPERATORS)


def accepted(server: ApiServer, namespace: str, given: dict[str, Any]) -> bool:
    return refusal(server, namespace, given) == ""


def refusal(server: ApiServer, namespace: str, given: dict[str, Any]) -> str:
    words = ("create", "--dry-run=server", "-n", namespace, "-f", "-")
    return server.kubectl(*words, given=text(given), ok=False).stderr


@pytest.fixture
def own(guarded: ApiServer) -> str:
    return guarded.namespace()


@pytest.mark.parametrize(
    "given",
    [
        {"dataset": "./q.jsonl"},
        {"dataset": "../q.jsonl"},
        {"dataset": " /data/q.csv"},
        {"model": "file:/model"},
        {"adapter": "~/adapter"},
    ],
    ids=str,
)
def test_local_files_are_refused_with_the_remedy(
    guarded: ApiServer, own: str, given: dict[str, str]
) -> None:
    said = refusal(guarded, own, workflow("w", inputs={"fine": DATA, "mine": given}))
    assert "spec.inputs.mine is a file or directory of your machine" in said
    assert "fmesh submit" in said


@pytest.mark.parametrize(
    "given",
    [
        DATA,
        {"model": "smollm2-135m-instruct"},
        {"model": "hf://org/name"},
        {"dataset": f"cas:dataset:{'1' * 64}.{'2' * 34}"},
        {"rows": [{"path": "./q.jsonl"}]},
        {"configMap": {"name": "q", "key": "q.jsonl"}},
    ],
)
def test_inputs_that_the_cluster_can_read_are_accepted(
    guarded: ApiServer, own: str, given: dict[str, Any]
) -> None:
    assert refusal(guarded, own, workflow("w", inputs={"x": given})) == ""


def test_a_namespace_may_bound_what_one_of_its_workflows_costs(
    guarded: ApiServer, own: str
) -> None:
    assert accepted(guarded, own, workflow("w"))
    guarded.kubectl("annotate", "namespace", own, f"{LIMIT}=5.00")
    until(lambda: not accepted(guarded, own, workflow("w")), "the bound holds")
    by_parameter = {"budgetUsd": "${params.b}", "params": {"b": "1"}}
    for beyond in ({}, {"budgetUsd": "5.01"}, {"budgetUsd": "10"}, by_parameter):
        said = refusal(guarded, own, workflow("w", **beyond))
        assert f'a workflow of namespace {own} needs a spec.budgetUsd of at most "5.00"' in said
    assert accepted(guarded, own, workflow("w", budgetUsd="5"))
    assert accepted(guarded, own, workflow("w", budgetUsd="0.5"))


def test_an_invalid_cost_bound_is_reported(guarded: ApiServer, own: str) -> None:
    guarded.kubectl("annotate", "namespace", own, f"{LIMIT}=five")
    until(lambda: not accepted(guarded, own, workflow("w", budgetUsd="1")), "the bound holds")
    said = refusal(guarded, own, workflow("w", budgetUsd="1"))
    assert 'is not an amount of dollars such as "5.00": five' in said


def test_an_amendment_is_checked_against_the_bound_and_a_label_is_not(
    guarded: ApiServer, own: str
) -> None:
    guarded.kubectl("create", "-n", own, "-f", "-", given=text(workflow("w", budgetUsd="9")))
    guarded.kubectl("annotate", "namespace", own, f"{LIMIT}=5")
    until(lambda: not accepted(guarded, own, workflow("v")), "the bound holds")
    guarded.kubectl("label", "fmw", "w", "-n", own, "team=blue")
    raised = ("patch", "fmw", "w", "-n", own, "--type=merge", "-p")
    assert "at most" in guarded.kubectl(*raised, '{"spec":{"budgetUsd":"8"}}', ok=False).stderr
    guarded.kubectl(*raised, '{"spec":{"budgetUsd":"4"}}')


def test_pools_can_be_created_only_in_the_operators_namespace(guarded: ApiServer, own: str) -> None:
    pool = yaml.safe_load((ROOT / "examples/kubernetes/pool-cpu.yaml").read_text())
    del pool["metadata"]["namespace"]
    assert "worker pools belong in the operator's namespace" in refusal(guarded, own, pool)
    assert refusal(guarded, OPERATORS, pool) == ""


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("steps", [[STEP, {"name": "b", "uses": "test.noop"}], [{**STEP, "with": {"value": 1}}]]),
        ("inputs", [{"base": {"model": "another"}}, {"x": {"model": "m"}}, None]),
    ],
)
def test_fields_that_determine_the_results_cannot_change(
    guarded: ApiServer, own: str, name: str, values: list[Any]
) -> None:
    given = workflow("w", inputs={"base": {"model": "m"}})
    guarded.kubectl("create", "-n", own, "-f", "-", given=text(given))
    for value in values:
        words = ("patch", "fmw", "w", "-n", own, "--type=merge", "-p")
        said = guarded.kubectl(*words, json.dumps({"spec": {name: value}}), ok=False).stderr
        assert f"{name} cannot change; submit a new workflow" in said, value


def test_a_large_workflow_stays_within_the_policies_cost_budget(
    guarded: ApiServer, own: str
) -> None:
    inputs = {f"i{n}": {"dataset": f"https://example.com/{'x' * 500}/{n}"} for n in range(1000)}
    steps = [{"name": f"s{n}", "uses": "test.noop", "with": {"v": "x" * 500}} for n in range(1000)]
    given = workflow("w", inputs=inputs, steps=steps)
    assert len(json.dumps(given)) > 0.9 * MOST_OBJECT_BYTES
    guarded.kubectl("create", "-n", own, "-f", "-", given=text(given))
    words = ("patch", "fmw", "w", "-n", own, "--type=merge", "-p")
    guarded.kubectl(*words, '{"spec":{"priority":5}}')


def reads(*objects: str, **more: Any) -> dict[str, Any]:
    """A workflow that sends these Secrets."""
    listed = {f"KEY_{n}": {"name": name, "key": "k"} for n, name in enumerate(objects)}
    return workflow("w", secrets=listed, **more)


def granted(server: ApiServer, own: str, *flags: str) -> None:
    """Gives the user ``creator`` a role in the namespace."""
    name = f"r{abs(hash(flags))}"
    server.kubectl("create", "role", name, "-n", own, *flags)
    server.kubectl("create", "rolebinding", name, "-n", own, f"--role={name}", "--user=creator")


def refusal_of_creator(server: ApiServer, own: str, given: dict[str, Any]) -> str:
    words = ("create", "--dry-run=server", "-n", own, "-f", "-", "--as=creator")
    return server.kubectl(*words, given=text(given), ok=False).stderr


@pytest.mark.parametrize(("resource", "several"), [("secrets", True), ("configmaps", False)])
def test_the_creator_of_a_workflow_needs_read_access_to_its_secrets_and_config_maps(
    guarded: ApiServer, own: str, resource: str, several: bool
) -> None:
    one, two = reads("hub"), reads("hub", "api")
    if resource == "configmaps":
        inputs = {n: {"configMap": {"name": n, "key": "q.jsonl"}} for n in ("hub", "api")}
        one, two = workflow("w", inputs={"hub": inputs["hub"]}), workflow("w", inputs=inputs)
    granted(guarded, own, "--verb=create,get", "--resource=flowmeshworkflows.flowmesh.dev")
    until(lambda: refusal_of_creator(guarded, own, workflow("w")) == "", "the role holds")
    for given, names in ((one, ["hub"]), (two, ["hub", "api"] if several else [])):
        said = refusal_of_creator(guarded, own, given)
        assert f"you may not get the {'Secrets' if several else 'ConfigMaps'} of spec." in said
        assert all(name in said for name in names)
    # One by name, several only with the right to get all.
    granted(guarded, own, "--verb=get", f"--resource={resource}", "--resource-name=hub")
    until(lambda: refusal_of_creator(guarded, own, one) == "", "the right to get one holds")
    assert "you may not get" in refusal_of_creator(guarded, own, two)
    granted(guarded, own, "--verb=get", f"--resource={resource}")
    until(lambda: refusal_of_creator(guarded, own, two) == "", "the right to get all holds")


def test_a_user_may_amend_a_workflow_even_without_access_to_its_secret(
    guarded: ApiServer, own: str
) -> None:
    guarded.kubectl("create", "-n", own, "-f", "-", given=text(reads("hub")))
    granted(guarded, own, "--verb=get,patch", "--resource=flowmeshworkflows.flowmesh.dev")
    amend = ("patch", "fmw", "w", "-n", own, "--as=creator", "--type=merge", "-p")
    priority = (*amend, '{"spec":{"priority":5}}')
    until(lambda: guarded.kubectl(*priority, ok=False).returncode == 0, "the role holds")
    other = {"spec": {"secrets": {"KEY_0": {"name": "api", "key": "k"}}}}
    said = guarded.kubectl(*amend, json.dumps(other), ok=False).stderr
    assert "secrets cannot change" in said
