"""The API server of the tests is a real one: rights, tokens, CRDs, outages."""

import json

import pytest
from tests.flowmesh_operator.api_server import ApiServer

pytestmark = pytest.mark.slow


def test_our_custom_resources_are_served(api_server: ApiServer) -> None:
    listed = api_server.kubectl("api-resources", "--api-group=flowmesh.dev", "-o", "name").stdout
    assert "flowmeshworkflows.flowmesh.dev" in listed.split()


def test_a_user_has_no_permission_until_a_role_grants_it(
    api_server: ApiServer, namespace: str
) -> None:
    words = ("get", "flowmeshworkflows", "-n", namespace)
    assert "forbidden" in api_server.kubectl(*words, who="ada", ok=False).stderr
    role = ("--verb=list,get", "--resource=flowmeshworkflows.flowmesh.dev")
    api_server.kubectl("create", "role", "reader", *role, "-n", namespace)
    api_server.kubectl(
        "create", "rolebinding", "reader", "--role=reader", "--user=ada", "-n", namespace
    )
    assert "No resources found" in api_server.kubectl(*words, who="ada").stderr


def test_the_token_of_a_service_account_is_reviewed(api_server: ApiServer, namespace: str) -> None:
    api_server.kubectl("create", "serviceaccount", "worker", "-n", namespace)
    words = ("create", "token", "worker", "-n", namespace, "--audience=flowmesh")
    token = api_server.kubectl(*words).stdout.strip()
    status = review(api_server, token, "flowmesh")
    assert status["authenticated"]
    assert status["user"]["username"] == f"system:serviceaccount:{namespace}:worker"
    assert not review(api_server, token, "another").get("authenticated", False)


def review(api_server: ApiServer, token: str, audience: str) -> dict[str, object]:
    asked = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenReview",
        "spec": {"token": token, "audiences": [audience]},
    }
    words = ("create", "-f", "-", "-o", "json")
    answer = json.loads(api_server.kubectl(*words, given=json.dumps(asked)).stdout)
    return dict(answer["status"])


def test_objects_survive_an_outage_of_the_api_server(api_server: ApiServer) -> None:
    name = api_server.namespace()
    with api_server.away():
        assert api_server.kubectl("get", "namespaces", ok=False).returncode != 0
    assert api_server.get("namespace", name)["metadata"]["name"] == name
