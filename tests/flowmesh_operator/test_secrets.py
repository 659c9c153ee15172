"""Secrets with rights granted by their owner, on a real API server."""

import re
from collections.abc import AsyncIterator

import pytest
from kubernetes.aio.client import ApiClient, Configuration
from tests.flowmesh_operator.api_server import ApiServer

from flowmesh_core.errors import FlowMeshError
from flowmesh_core.sharing.key_ring import KeyRing
from flowmesh_core.spec.secrets import SecretValue
from flowmesh_operator.access.secret_rules import allowed_hosts
from flowmesh_operator.access.secrets import NamespaceSecrets
from flowmesh_operator.kube.client import KubeClient
from flowmesh_operator.settings import OperatorSettings

pytestmark = pytest.mark.slow


@pytest.fixture
async def secrets(api_server: ApiServer, namespace: str) -> AsyncIterator[NamespaceSecrets]:
    """Yields a reader with the operator's service account, which has no rights."""
    api_server.kubectl("create", "serviceaccount", "op", "-n", namespace)
    token = api_server.kubectl("create", "token", "op", "-n", namespace).stdout.strip()
    found = Configuration(
        host=api_server.url, ssl_ca_cert=str(api_server.certificates.authority),
        api_key={"BearerToken": f"Bearer {token}"},
    )  # fmt: skip
    client = ApiClient(configuration=found)
    settings = OperatorSettings(
        store="", key_ring=KeyRing.of(bytes(32)), namespace=namespace, service_account="op"
    )
    yield NamespaceSecrets(KubeClient(client), settings)
    await client.close()


def annotate(server: ApiServer, namespace: str, **rules: str) -> None:
    given = [f"flowmesh.dev/{name}={value}" for name, value in rules.items()]
    server.kubectl("annotate", "secret", "hf", "-n", namespace, "--overwrite", *given)


async def test_a_missing_permission_is_named_with_the_commands_that_grant_it(
    api_server: ApiServer, namespace: str, secrets: NamespaceSecrets
) -> None:
    made = {"token": "s3cret", "user": "ada"}
    api_server.kubectl(
        "create", "secret", "generic", "hf", "-n", namespace,
        *(f"--from-literal={k}={v}" for k, v in made.items()),
    )  # fmt: skip
    with pytest.raises(FlowMeshError) as refused:
        await secrets.read(namespace, ("HF_TOKEN=hf/token",), "model.import")
    assert refused.value.where == f"secret {namespace}/hf"
    for command in refused.value.remedy.split(" && "):
        api_server.kubectl(*command.split()[1:])
    with pytest.raises(FlowMeshError, match="to which hosts") as unnamed:
        await secrets.read(namespace, ("HF_TOKEN=hf/token",), "model.import")
    assert f"kubectl annotate secret hf -n {namespace} --overwrite" in unnamed.value.remedy
    annotate(api_server, namespace, hosts="huggingface.co, *.huggingface.co")
    assert await secrets.read(namespace, ("HF_TOKEN=hf/token",), "model.import") == {
        "HF_TOKEN": SecretValue("s3cret", ("huggingface.co", "*.huggingface.co"))
    }
    with pytest.raises(FlowMeshError, match="it has no key 'pass'") as missing:
        await secrets.read(namespace, ("HF_TOKEN=hf/pass",), "model.import")
    with pytest.raises(FlowMeshError, match="does not say where the secret HF_TOKEN is"):
        await secrets.read(namespace, ("HF_TOKEN",), "model.import")
    for error in (refused, unnamed, missing):
        assert "s3cret" not in str(error.value)
        assert "user" not in str(error.value)  # the name of its other key


@pytest.mark.parametrize(
    ("annotations", "reason"),
    [
        ({"hosts": ""}, "does not say to which hosts"),
        ({"hosts": "https://api.example.com"}, "'https://api.example.com', which is not a host"),
        ({"hosts": "api.example.com/v1"}, "is not a host"),
        ({"hosts": "*"}, "is not a host"),
        ({"hosts": "*.com"}, "is not a host"),
        ({"hosts": "a.example.com", "engines": "model.import"}, "is not for http.request"),
        ({"hosts": "a.example.com", "engines": ""}, "lists no engine"),
        ({"hosts": "A.example.com", "engines": "http.request, http.chat"}, ""),
        ({"hosts": "10.1.2.3,*.example.com"}, ""),
    ],
    ids=str,
)
def test_annotations_define_where_a_secret_may_be_sent(
    annotations: dict[str, str], reason: str
) -> None:
    given = {f"flowmesh.dev/{name}": value for name, value in annotations.items()}
    if not reason:
        assert allowed_hosts(given, "team-a", "api", "http.request")
        return
    with pytest.raises(FlowMeshError, match=re.escape(reason)) as refused:
        allowed_hosts(given, "team-a", "api", "http.request")
    assert refused.value.remedy
