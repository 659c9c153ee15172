"""The objects of pools before a real API server, in a namespace that enforces *restricted*."""

import json
from typing import Any

import pytest
from tests.flowmesh_operator.api_server import ApiServer
from tests.flowmesh_operator.pool_builder import AROUND, FULL, make_pool, pool_object

from flowmesh_operator.pools.objects import wanted_objects

pytestmark = pytest.mark.slow

RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}
SPECS: dict[str, dict[str, Any]] = {
    "plain": {},
    "full": FULL,
    "fixed": {"maxReplicas": 3, "autoscaling": {"mode": "fixed"}},
    "claim": {"cache": {"claimName": "kept"}, "userCode": True},
}


@pytest.fixture(scope="module")
def restricted(api_server: ApiServer) -> str:
    priority = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": -1}
    named = {**priority, "metadata": {"name": "flowmesh-low"}}
    api_server.kubectl("create", "-f", "-", given=json.dumps(named))
    return api_server.namespace(RESTRICTED)


def applied(server: ApiServer, namespace: str, item: dict[str, Any], *words: str) -> dict[str, Any]:
    text = json.dumps(item)
    command = ("apply", "--server-side", "-n", namespace, "-f", "-", "-o", "json", *words)
    found: dict[str, Any] = json.loads(server.kubectl(*command, given=text).stdout)
    return found


@pytest.mark.parametrize("name", SPECS)
def test_the_api_server_accepts_every_object_and_the_pods_are_restricted(
    api_server: ApiServer, restricted: str, name: str
) -> None:
    given = pool_object(SPECS[name], name, restricted)
    uid = applied(api_server, restricted, {**given, "metadata": {"name": name}})["metadata"]["uid"]
    pool = make_pool(SPECS[name], name, restricted)
    pool = pool.model_copy(update={"metadata": pool.metadata.model_copy(update={"uid": uid})})
    for item in wanted_objects(pool, AROUND):
        done = applied(api_server, restricted, item)
        assert done["metadata"]["ownerReferences"][0]["uid"] == uid
    template = item["spec"]["template"]
    lone = {"apiVersion": "v1", "kind": "Pod", **template}
    lone["metadata"] = {**template["metadata"], "name": name}
    pod = api_server.kubectl(
        "create", "--dry-run=server", "-n", restricted, "-f", "-", given=json.dumps(lone)
    )
    assert f"pod/{name} created" in pod.stdout
    assert "Warning" not in pod.stderr


def test_the_namespace_refuses_a_pod_with_more_privileges(
    api_server: ApiServer, restricted: str
) -> None:
    applied(
        api_server,
        restricted,
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "flowmesh-pool-loose"}},
    )
    pool = make_pool({}, "loose", restricted)
    template = wanted_objects(pool, AROUND)[-1]["spec"]["template"]
    del template["spec"]["securityContext"]["seccompProfile"]
    lone = {"apiVersion": "v1", "kind": "Pod", **template}
    lone["metadata"] = {**template["metadata"], "name": "loose"}
    pod = api_server.kubectl(
        "create", "--dry-run=server", "-n", restricted, "-f", "-", given=json.dumps(lone), ok=False
    )
    assert "seccompProfile" in pod.stderr


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"minReplicas": 3}, "minReplicas must not be greater"),
        ({"engines": {"flavor": "gpu"}}, "needs devices"),
        ({"maxReplicas": 2, "cache": {"claimName": "c"}}, "one worker at most"),
        ({"power": {"loadWatts": 1, "idleWatts": 2}}, "idleWatts must not"),
    ],
)
def test_the_api_server_refuses_the_specs_that_the_models_refuse(
    api_server: ApiServer, restricted: str, spec: dict[str, Any], words: str
) -> None:
    given = pool_object(spec, "wrong", restricted)
    given["metadata"] = {"name": "wrong", "namespace": restricted}
    refused = api_server.kubectl("create", "-f", "-", given=json.dumps(given), ok=False)
    assert words in refused.stderr


def test_the_api_server_refuses_a_name_that_is_too_long(
    api_server: ApiServer, restricted: str
) -> None:
    given = pool_object({}, "a" * 41, restricted)
    given["metadata"] = {"name": "a" * 41, "namespace": restricted}
    refused = api_server.kubectl("create", "-f", "-", given=json.dumps(given), ok=False)
    assert "at most 40" in refused.stderr


def test_a_pod_gets_its_nodes_zone_when_it_is_bound(api_server: ApiServer, restricted: str) -> None:
    """The source of ``--zone``, which needs no rights on nodes."""
    zone = {"topology.kubernetes.io/zone": "zone-a"}
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-a", "labels": zone}}
    api_server.kubectl("create", "-f", "-", given=json.dumps(node))
    applied(
        api_server,
        restricted,
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "flowmesh-pool-near"}},
    )
    template = wanted_objects(make_pool({}, "near", restricted), AROUND)[-1]["spec"]["template"]
    lone = {"apiVersion": "v1", "kind": "Pod", **template}
    lone["metadata"] = {**template["metadata"], "name": "near"}
    api_server.kubectl("create", "-n", restricted, "-f", "-", given=json.dumps(lone))
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": "near", "namespace": restricted},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "node-a"},
    }
    path = f"/api/v1/namespaces/{restricted}/pods/near/binding"
    api_server.kubectl("create", "--raw", path, "-f", "-", given=json.dumps(binding))
    labels = api_server.get("pod", "near", "-n", restricted)["metadata"]["labels"]
    assert labels["topology.kubernetes.io/zone"] == "zone-a"
