"""The custom resources on a real API server: accepted, refused and as kubectl shows them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML
from tests.flowmesh_core.graph.parameter_places import PLACES, with_parameters
from tests.flowmesh_operator.api_server import ROOT, ApiServer, until
from tests.flowmesh_operator.objects import STEP, policy, text, workflow

from flowmesh_core.errors import SpecError
from flowmesh_core.spec.resources import definitions
from flowmesh_core.spec.size import MOST_OBJECT_BYTES
from flowmesh_core.spec.status import (
    MOST_MESSAGE_CHARS,
    MOST_ROWS,
    Condition,
    StepRow,
    WorkflowStatus,
)
from flowmesh_core.spec.workflow import LARGE_FIELDS, MUTABLE_FIELDS, PARAMETER_TERMS
from flowmesh_operator.workflows.submission import submission

pytestmark = pytest.mark.slow

Refusal = Callable[..., str]
FENCE = "```yaml\n"


@pytest.fixture
def refusal(api_server: ApiServer, namespace: str) -> Refusal:
    """Creates an object as a dry run; returns the server's refusal."""

    def find(given: dict[str, Any]) -> str:
        words = ("create", "--dry-run=server", "-n", namespace, "-f", "-")
        return api_server.kubectl(*words, given=text(given), ok=False).stderr

    return find


@pytest.fixture
def stand(api_server: ApiServer, namespace: str) -> Callable[..., str]:
    """Creates a workflow; returns the server's answer to a merge patch of its spec."""
    first = {"params": {"x": 1}, "outputs": {"o": "a.out"}, "optimize": "cost", **_SECRETS}
    first["minTrust"] = 1
    given = workflow("w", inputs={"base": {"model": "m"}}, **first)
    api_server.kubectl("create", "-n", namespace, "-f", "-", given=text(given))

    def patch(**spec: Any) -> str:
        words = ("patch", "fmw", "w", "-n", namespace, "--type=merge", "-p")
        return api_server.kubectl(*words, json.dumps({"spec": spec}), ok=False).stderr

    return patch


_SECRETS: dict[str, Any] = {"secrets": {"HF_TOKEN": {"name": "hub", "key": "token"}}}
CHANGES: dict[str, Any] = {
    "steps": [STEP, {"name": "b", "uses": "test.noop"}],
    "inputs": {"base": {"model": "another"}},
    "params": {"x": 2},
    "outputs": {"o": "a.another"},
    "secrets": {"HF_TOKEN": {"name": "hub", "key": "another"}},
    "optimize": "latency",
    "weights": {"alpha": 1, "beta": 1, "gamma": 1},
    "minTrust": 2,
}
AMENDMENTS: dict[str, Any] = {
    "suspend": True,
    "priority": 5,
    "budgetUsd": "0.50",
    "deadline": "30m",
    "ttlSecondsAfterFinished": 60,
}


def written() -> list[Any]:
    """Yields every object of the examples and the pages, with its file."""
    files = [(p, p.read_text()) for p in sorted((ROOT / "examples").rglob("*.yaml"))]
    for page in sorted((ROOT / "docs").glob("*.md")):
        blocks = page.read_text().split(FENCE)[1:]
        files += [(page, block.partition("```")[0]) for block in blocks]
    return [
        pytest.param(found, id=f"{path.relative_to(ROOT)}:{found['metadata']['name']}")
        for path, content in files
        for found in _objects(path, content)
    ]


def _objects(path: Path, content: str) -> list[dict[str, Any]]:
    if "flowmesh.dev/v1alpha1" not in content or "kind:" not in content:
        return []
    return [dict(d) for d in YAML(typ="safe").load_all(content) if d]


def test_every_example_and_every_object_of_the_pages_is_accepted(
    api_server: ApiServer, namespace: str
) -> None:
    objects = [p.values[0] for p in written()]
    assert {o["kind"] for o in objects} == {
        d["spec"]["names"]["kind"] for d in definitions().values()
    }
    for found in objects:
        if found["kind"] not in ("FlowMeshCachePolicy", "FlowMeshQuota"):
            found["metadata"] = {**found["metadata"], "namespace": namespace}
    words = ("apply", "--dry-run=server", "--validate=strict", "-f", "-")
    done = api_server.kubectl(*words, given=text(*objects))
    assert len(done.stdout.splitlines()) == len(objects)
    assert done.stderr == ""


def test_rows_may_be_texts(refusal: Refusal) -> None:
    assert refusal(workflow("w", inputs={"x": {"rows": ["hello", {"text": "world"}]}})) == ""


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"optimize": "cost", "weights": CHANGES["weights"]}, "give optimize or weights, not both"),
        ({"inputs": {"x": {"model": "m", "dataset": "d"}}}, "exactly one of model, dataset"),
        ({"inputs": {"x y": {"model": "m"}}}, "an input has a name of letters, digits"),
        ({"outputs": {"-o": "a.out"}}, "an output has a name of letters, digits"),
        ({"secrets": {"x.y": {"name": "a", "key": "b"}}}, "a secret has a name of letters"),
        ({"steps": [{"name": "inputs", "uses": "test.noop"}]}, "'inputs' is not a name for a step"),
        ({"steps": []}, "spec.steps in body should have at least 1 items"),
        ({"budgetUsd": "five"}, "spec.budgetUsd in body should match"),
        ({"budgetUsd": "0.0"}, "budgetUsd: 0 is not a limit"),
        ({"deadline": "0s"}, "deadline: 0 is not a limit"),
        ({"ttlSecondsAfterFinished": -1}, "should be greater than or equal to 0"),
        (
            {"inputs": {"x": {"configMap": {"name": "q", "key": "q.txt"}}}},
            "spec.inputs.x.configMap.key in body should match",
        ),
        ({"optimise": "cost"}, 'unknown field "spec.optimise"'),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_workflow_that_breaks_a_rule_is_refused(
    refusal: Refusal, spec: dict[str, Any], words: str
) -> None:
    assert words in refusal(workflow("w", **spec))


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"scope": "group"}, "group is required where scope is group"),
        ({"scope": "all", "group": "g"}, "group is required where scope is group"),
        ({"namespaces": {"names": []}}, "names or selector must be given"),
        ({"scope": "some"}, 'Unsupported value: "some"'),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_policy_that_breaks_a_rule_is_refused(
    refusal: Refusal, spec: dict[str, Any], words: str
) -> None:
    assert words in refusal(policy("p", **spec))
    assert refusal(policy("p")) == ""


def test_fields_that_determine_the_results_cannot_change(stand: Callable[..., str]) -> None:
    small = {n: v for n, v in CHANGES.items() if n not in LARGE_FIELDS}
    for name, value in small.items():
        assert f"{name} cannot change; submit a new workflow" in stand(**{name: value}), name
        if name != "weights":
            assert f"{name} cannot change" in stand(**{name: None}), f"{name} taken away"


def test_amendments_are_accepted(stand: Callable[..., str]) -> None:
    assert set(AMENDMENTS) == set(MUTABLE_FIELDS)
    for name, value in AMENDMENTS.items():
        assert stand(**{name: value}) == "", name
        assert stand(**{name: None}) == "", name


def test_a_term_is_amended_by_a_value_and_not_by_a_parameter(stand: Callable[..., str]) -> None:
    for name in PARAMETER_TERMS:
        said = stand(**{name: "${params.x}"})
        assert f"{name} cannot change to a parameter; write the value" in said


@pytest.mark.parametrize("place", PLACES, ids=lambda p: ".".join(map(str, p)))
def test_a_parameter_may_stand_in_its_place_and_nothing_of_the_object_is_pruned(
    api_server: ApiServer, namespace: str, place: tuple[Any, ...]
) -> None:
    given = {**workflow("p"), "spec": with_parameters([place])}
    words = ("create", "--dry-run=server", "--validate=strict", "-o", "json", "-n", namespace)
    done = api_server.kubectl(*words, "-f", "-", given=text(given))
    assert json.loads(done.stdout)["spec"] == given["spec"]


def status(phase: str, complete: str) -> dict[str, Any]:
    condition = Condition(
        type="Complete",
        status=complete,
        reason="Succeeded",
        message="3 of 3 steps",
        last_transition_time="2026-01-01T00:00:00Z",
        observed_generation=1,
    )
    found = WorkflowStatus(
        phase=phase,
        progress="3/3",
        hits=2,
        cost_usd="0.0123",
        saved_usd="0.0456",
        conditions=[condition],
        steps=[StepRow(path=f"a[x={n}]", state="COMPLETED") for n in range(MOST_ROWS)],
    )
    return found.model_dump(by_alias=True, exclude_defaults=True)


def patch_status(server: ApiServer, namespace: str, name: str, given: dict[str, Any]) -> str:
    words = ("patch", "fmw", name, "-n", namespace, "--subresource=status", "--type=merge")
    patch = json.dumps({"status": given})
    return server.kubectl(*words, "--patch-file=/dev/stdin", given=patch, ok=False).stderr


def test_kubectl_waits_for_the_end_and_shows_what_it_cost(
    api_server: ApiServer, namespace: str
) -> None:
    objects = text(workflow("w"), workflow("other"))
    api_server.kubectl("create", "-n", namespace, "-f", "-", given=objects)
    wait = ("wait", "--for=condition=Complete", "fmw/w", "-n", namespace)
    assert patch_status(api_server, namespace, "w", status("Running", "False")) == ""
    assert "timed out" in api_server.kubectl(*wait, "--timeout=1s", ok=False).stderr
    assert patch_status(api_server, namespace, "w", status("Succeeded", "True")) == ""
    assert "condition met" in api_server.kubectl(*wait, "--timeout=180s").stdout
    head, row = api_server.kubectl("get", "fmw", "w", "-n", namespace).stdout.splitlines()
    assert head.split() == ["NAME", "PHASE", "PROGRESS", "HITS", "COST", "AGE"]
    assert row.split()[:5] == ["w", "Succeeded", "3/3", "2", "0.0123"]
    wide = api_server.kubectl("get", "fmw", "w", "-n", namespace, "-owide").stdout.split()
    assert {"SAVED", "ETA", "MESSAGE", "0.0456"} <= set(wide)
    chosen = ("get", "fmw", "-n", namespace, "--field-selector=status.phase=Succeeded", "-oname")
    assert api_server.kubectl(*chosen).stdout.split() == ["flowmeshworkflow.flowmesh.dev/w"]


def test_every_field_of_a_status_is_stored(api_server: ApiServer, namespace: str) -> None:
    api_server.kubectl("create", "-n", namespace, "-f", "-", given=text(workflow("w")))
    full = {
        **status("Failed", "False"),
        "epoch": 3,
        "observedGeneration": 1,
        "counts": {"total": 3, "completed": 2, "failed": 1},
        "actions": 40,
        "executed": 12,
        "eta": "2026-01-01T00:00:00Z",
        "startedAt": "2026-01-01T00:00:00Z",
        "endedAt": "2026-01-01T00:01:00Z",
        "message": "out of memory",
        "failedStep": "a",
        "stepsRef": "cas:1.2",
        "outputs": {
            "o": {"kind": "metrics", "reference": "cas:1.2", "bytes": 9, "value": {"loss": 0.5}},
            "skipped": {"kind": "dataset", "reference": ""},
        },
    }
    assert patch_status(api_server, namespace, "w", full) == ""
    assert api_server.get("fmw", "w", "-n", namespace)["status"] == full


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"steps": [{"path": f"s{n}"} for n in range(MOST_ROWS + 1)]}, "must have at most 100"),
        ({"conditions": [{"type": "A", "status": "True"}] * 2}, "Duplicate value"),
        ({"eta": "soon"}, "must be of type date-time"),
    ],
)
def test_a_status_that_breaks_its_bounds_is_refused(
    api_server: ApiServer, namespace: str, given: dict[str, Any], words: str
) -> None:
    api_server.kubectl("create", "-n", namespace, "-f", "-", given=text(workflow("w")))
    assert words in patch_status(api_server, namespace, "w", given)


def test_a_status_in_a_users_file_is_ignored(api_server: ApiServer, namespace: str) -> None:
    forged = {**workflow("w"), "status": {"phase": "Succeeded"}}
    api_server.kubectl("create", "-n", namespace, "-f", "-", given=text(forged))
    assert "status" not in api_server.get("fmw", "w", "-n", namespace)


def many_steps(size: int) -> dict[str, Any]:
    """Returns a workflow of about this many bytes, in steps of half a kilobyte."""
    each = len(json.dumps(_small(9999))) + 2
    return workflow("large", steps=[_small(n) for n in range(size // each)])


def _small(n: int) -> dict[str, Any]:
    return {"name": f"s{n}", "uses": "test.noop", "with": {"value": "x" * 500}}


def one_value(size: int) -> dict[str, Any]:
    """Returns a workflow of about this many bytes, in one text."""
    return workflow("large", params={"text": "x" * size})


def fullest() -> dict[str, Any]:
    """Returns a status of the maximum size."""
    message, name = "m" * MOST_MESSAGE_CHARS, "n" * 63
    row = {"uses": name, "state": "COMPLETED", "reason": name, "message": message}
    output = {"kind": "metrics", "reference": "c" * 111, "value": {"x": "v" * 1000}}
    long = "m" * 16_384
    condition = {
        "status": "False",
        "reason": name,
        "message": long,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    return {
        "message": long,
        "conditions": [{"type": t, **condition} for t in ("Failed", "Complete")],
        "steps": [{**row, "path": f"{name}[x={n}]"} for n in range(MOST_ROWS)],
        "outputs": {f"{n}-{name[:59]}": output for n in range(MOST_ROWS)},
    }


@pytest.mark.parametrize("build", [many_steps, one_value])
def test_a_large_workflow_is_stored_amended_and_has_a_status_and_a_larger_one_is_refused(
    api_server: ApiServer, namespace: str, build: Callable[[int], dict[str, Any]]
) -> None:
    given = build(MOST_OBJECT_BYTES)
    words = ("apply", "--server-side", "-n", namespace, "-f", "-")
    api_server.kubectl(*words, given=text(given))
    assert api_server.get("fmw", "large", "-n", namespace)["spec"] == given["spec"]
    amend = ("patch", "fmw", "large", "-n", namespace, "--type=merge", "-p")
    api_server.kubectl(*amend, '{"spec":{"priority":5}}')
    assert patch_status(api_server, namespace, "large", fullest()) == ""
    create = ("create", "-n", namespace, "-f", "-")
    larger = {**build(int(1.6 * MOST_OBJECT_BYTES)), "metadata": {"name": "larger"}}
    said = api_server.kubectl(*create, given=text(larger), ok=False).stderr
    assert "request is too large" in said


def test_a_workflow_that_might_leave_no_room_for_its_status_is_refused() -> None:
    fits, larger = (stored(one_value(int(s * MOST_OBJECT_BYTES))) for s in (0.99, 1.01))
    assert submission(fits, {}).uid == "u"
    with pytest.raises(SpecError, match="bytes as JSON, of at most 1200000 that a cluster keeps"):
        submission(larger, {})


def stored(given: dict[str, Any]) -> dict[str, Any]:
    return {**given, "metadata": {**given["metadata"], "namespace": "n", "uid": "u"}}


def test_kubectl_explain_describes_the_fields(api_server: ApiServer) -> None:
    def explained(field: str) -> str:
        return " ".join(api_server.kubectl("explain", field, ok=False).stdout.split())

    until(lambda: "DESCRIPTION" in explained("fmw.spec.steps"), "the schema is published")
    said = explained("fmw.spec.steps")
    for phrase in (
        "A node of the DAG",
        "name <string> -required-",
        "`fmesh engines` lists them",
        "For each input port, its source: inputs.<name>, <step>.<port>",
        "the step has one instance, such as tune[lr=1e-5], for each combination of values",
    ):
        assert phrase in said
    assert "Maximum number of attempts" in explained("fmw.spec.steps.retry.attempts")
    assert "group" in explained("fmcp.spec.scope")
    assert "The desired number of workers" in explained("fmwp.status.desired")


def test_short_names_and_the_category_resolve_to_the_kinds(
    api_server: ApiServer, namespace: str
) -> None:
    listed = api_server.kubectl("api-resources", "--api-group=flowmesh.dev", "--no-headers").stdout
    short = {line.split()[0]: line.split()[1] for line in listed.splitlines()}
    assert short == {
        "flowmeshworkflows": "fmw",
        "flowmeshworkerpools": "fmwp",
        "flowmeshcachepolicies": "fmcp",
        "flowmeshquotas": "fmq",
        "flowmeshservices": "fms",
    }
    api_server.kubectl("create", "-n", namespace, "-f", "-", given=text(workflow("w")))
    assert "flowmeshworkflow.flowmesh.dev/w" in (
        api_server.kubectl("get", "flowmesh", "-n", namespace, "-oname").stdout
    )


def test_every_rule_of_the_schemas_is_tested() -> None:
    """A new rule needs a case above."""
    counted = json.dumps([definitions()[p] for p in ("flowmeshworkflows", "flowmeshcachepolicies")])
    immutable = len(CHANGES) - len(LARGE_FIELDS)
    assert counted.count('"rule":') == immutable + 8 + 2 * len(PARAMETER_TERMS)
