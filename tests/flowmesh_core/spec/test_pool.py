"""Worker pools: what the models refuse, and that the API server's rules refuse the same."""

from pathlib import Path
from typing import Any

import celpy
import pytest
from celpy.adapter import json_to_cel

from flowmesh_core.errors import SpecError
from flowmesh_core.spec.load import load_text, parse_object
from flowmesh_core.spec.pool import FlowMeshWorkerPool
from flowmesh_core.spec.resources import definitions

ROOT = Path(__file__).parents[3]
IMAGE = {"image": "flowmesh-worker:1"}
PINNED = {"image": "flowmesh-worker@sha256:" + 64 * "a"}
SANDBOX = {"podTemplate": {"spec": {"runtimeClassName": "gvisor"}}}


def pool(spec: dict[str, Any], name: str = "cpu") -> FlowMeshWorkerPool:
    found = parse_object(
        {
            "apiVersion": "flowmesh.dev/v1alpha1",
            "kind": "FlowMeshWorkerPool",
            "metadata": {"name": name, "namespace": "flowmesh"},
            "spec": {**IMAGE, **spec},
        }
    )
    assert isinstance(found, FlowMeshWorkerPool)
    return found


def _schema() -> dict[str, Any]:
    definition = definitions()["flowmeshworkerpools"]
    schema: dict[str, Any] = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema


def _held(schema: dict[str, Any], value: Any) -> bool:
    """Whether every CEL rule of the schema holds for the value, at every depth."""
    env = celpy.Environment()
    for rule in schema.get("x-kubernetes-validations", []):
        program = env.program(env.compile(rule["rule"]))
        if not bool(program.evaluate({"self": json_to_cel(value)})):
            return False
    inner = schema.get("properties", {})
    return all(_held(inner[k], v) for k, v in value.items() if k in inner and isinstance(v, dict))


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"minReplicas": 2}, "minReplicas must not be greater"),
    ({"minReplicas": 3, "maxReplicas": 2}, "minReplicas must not be greater"),
    (
        {"minReplicas": 1, "maxReplicas": 2, "autoscaling": {"mode": "fixed"}},
        "the pool has maxReplicas workers",
    ),
    ({"engines": {"flavor": "gpu"}}, "needs devices"),
    ({"power": {"loadWatts": 10, "idleWatts": 20}}, "idleWatts must not be greater"),
    ({"llm": {"maxNumSeqs": 64, "maxNumBatchedTokens": 32}}, "must not be less than maxNumSeqs"),
    ({"llm": {"enforceEager": True}}, "need devices"),
    ({"llm": {"gpuMemoryUtilization": 0.5}}, "need devices"),
    ({"llm": {"enableChunkedPrefill": False}}, "need devices"),
    ({"cache": {"sizeLimit": "1Gi", "claimName": "c"}}, "not both"),
    ({"maxReplicas": 2, "cache": {"claimName": "c"}}, "one worker at most"),
    ({"trust": 2, "userCode": True}, "trust 1 at most"),
    ({"trust": 3}, "pinned by digest"),
    ({**PINNED, "trust": 3, "userCode": True, **SANDBOX}, "no userCode"),
    ({**PINNED, "trust": 3, "egress": [{"cidr": "10.0.0.0/8"}]}, "no egress"),
]


@pytest.mark.parametrize(("spec", "words"), REFUSED, ids=lambda x: str(x)[:40])
def test_the_models_and_the_api_servers_rules_refuse_the_same_specs(
    spec: dict[str, Any], words: str
) -> None:
    with pytest.raises(SpecError, match=words):
        pool(spec)
    assert not _held(_schema()["properties"]["spec"], {**IMAGE, **spec})


ACCEPTED: list[dict[str, Any]] = [
    {},
    {"minReplicas": 1},
    {"maxReplicas": 0},
    {"maxReplicas": 3, "autoscaling": {"mode": "fixed"}},
    {"minReplicas": 3, "maxReplicas": 3, "autoscaling": {"mode": "fixed"}},
    {"minReplicas": 0, "maxReplicas": 3, "autoscaling": {"mode": "keda"}},
    {"engines": {"flavor": "gpu"}, "devices": {"count": 2}},
    {"power": {"loadWatts": 10}},
    {"llm": {"maxNumSeqs": 32}},
    {"llm": {"maxNumSeqs": 32, "enforceEager": True}, "devices": {"count": 1}},
    {"cache": {"claimName": "c"}},
    {"trust": 0, "userCode": True},
    {"trust": 2, "userCode": True, **SANDBOX},
    {**PINNED, "trust": 3},
]


@pytest.mark.parametrize("spec", ACCEPTED, ids=str)
def test_specs_that_the_models_accept_satisfy_the_rules(spec: dict[str, Any]) -> None:
    assert pool(spec)
    assert _held(_schema()["properties"]["spec"], {**IMAGE, **spec})


@pytest.mark.parametrize(
    ("spec", "trust"),
    [
        ({}, 2),
        ({"userCode": True}, 1),
        ({"userCode": True, **SANDBOX}, 2),
        ({"userCode": True, "trust": 0}, 0),
        ({"trust": 1}, 1),
    ],
    ids=str,
)
def test_the_default_trust_of_a_pool_depends_on_what_it_runs(
    spec: dict[str, Any], trust: int
) -> None:
    assert pool(spec).spec.trust_level == trust


@pytest.mark.parametrize(("name", "good"), [("a", True), ("gpu-1", True), ("a" * 40, True)] + [
    (name, False) for name in ("a" * 41, "a.b", "-a", "a-", "A")
])  # fmt: skip
def test_a_pools_name_fits_into_its_pods_names(name: str, good: bool) -> None:
    root = {k: v for k, v in _schema().items() if k != "properties"}
    assert _held(root, {"metadata": {"name": name}}) == good
    if good:
        assert pool({}, name)
    else:
        with pytest.raises(SpecError):
            pool({}, name)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"price": {"usdPerHour": 1.2}}, "in quotes"),
        ({"podTemplate": {"spec": {"hostNetwork": True}}}, "no field 'hostNetwork'"),
        ({"podTemplate": {"spec": {"securityContext": {}}}}, "no field 'securityContext'"),
        ({"podTemplate": {"spec": {"serviceAccountName": "x"}}}, "no field"),
        ({"podTemplate": {"spec": {"containers": [{"name": "other"}]}}}, "containers"),
        ({"podTemplate": {"spec": {"containers": [{"image": "x"}]}}}, "no field 'image'"),
        ({"podTemplate": {"spec": {"containers": [{"securityContext": {}}]}}}, "no field"),
        ({"autoscaling": {"targetBacklog": "0s"}}, "0 is not a limit"),
        ({"devices": {"resourceName": "gpu"}}, "an extended resource"),
        ({"engines": {"plugins": ["A B"]}}, "an engine's name"),
    ],
)
def test_an_invalid_pool_spec_is_refused_with_a_readable_message(
    spec: dict[str, Any], words: str
) -> None:
    with pytest.raises(SpecError, match=words):
        pool(spec)


def test_the_flavor_follows_from_the_devices() -> None:
    assert pool({}).spec.flavor == "cpu"
    assert pool({"devices": {}}).spec.flavor == "gpu"
    assert pool({"engines": {"flavor": "thin"}}).spec.flavor == "thin"


def test_without_autoscaling_the_pool_always_has_its_maximum_size() -> None:
    assert pool({"maxReplicas": 3, "autoscaling": {"mode": "fixed"}}).spec.least == 3
    assert pool({"maxReplicas": 3}).spec.least == 0


@pytest.mark.parametrize("file", ["pool-cpu.yaml", "pool-gpu.yaml"])
def test_the_examples_are_pools_that_the_api_server_accepts(file: str) -> None:
    text = (ROOT / "examples/kubernetes" / file).read_text()
    (loaded,), _ = load_text(text)
    found = loaded.object
    assert isinstance(found, FlowMeshWorkerPool)
    given = found.model_dump(by_alias=True, exclude_unset=True, mode="json")
    assert _held(_schema()["properties"]["spec"], given["spec"])


def test_kubectl_shows_desired_ready_busy_backlog_price_and_age() -> None:
    definition = definitions()["flowmeshworkerpools"]
    (version,) = definition["spec"]["versions"]
    columns = version["additionalPrinterColumns"]
    names = ["Desired", "Ready", "Busy", "Backlog", "Price", "Age"]
    assert [c["name"] for c in columns] == names
    status = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    shown = [c["jsonPath"].split(".")[2] for c in columns if c["jsonPath"].startswith(".status.")]
    assert set(shown) <= set(status)
    assert definition["spec"]["names"]["shortNames"] == ["fmwp"]
    scale = {"specReplicasPath": ".spec.maxReplicas", "statusReplicasPath": ".status.ready"}
    assert version["subresources"] == {"status": {}, "scale": scale}


def test_an_integer_may_be_written_with_a_point_as_the_api_server_takes_it() -> None:
    written = {"maxReplicas": 3.0, "devices": {"count": 2.0}, "llm": {"maxNumSeqs": 32.0}}
    whole = {"maxReplicas": 3, "devices": {"count": 2}, "llm": {"maxNumSeqs": 32}}
    assert pool(written) == pool(whole)
    assert type(pool(written).spec.max_replicas) is int
    watts = pool({"power": {"loadWatts": 10.0}}).spec.power
    assert watts is not None
    assert type(watts.load_watts) is float
    with pytest.raises(SpecError, match=r"expected an integer, got the number 3\.5"):
        pool({"maxReplicas": 3.5})
