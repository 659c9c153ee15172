"""Secrets with rights granted by their owner, on a real API server."""

import json
from collections.abc import AsyncIterator

import pytest
from kubernetes.aio.client import ApiClient, Configuration
from tests.flowmesh_operator.api_server import ApiServer

from flowmesh_core.errors import FlowMeshError
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
    settings = OperatorSettings(store="", master_key=b"", namespace=namespace, service_account="op")
    yield NamespaceSecrets(KubeClient(client), settings)
    await client.close()


async def test_a_missing_right_is_named_with_the_commands_that_give_it(
    api_server: ApiServer, namespace: str, secrets: NamespaceSecrets
) -> None:
    made = {"token": "s3cret", "user": "ada"}
    api_server.kubectl(
        "create", "secret", "generic", "hf", "-n", namespace,
        *(f"--from-literal={k}={v}" for k, v in made.items()),
    )  # fmt: skip
    with pytest.raises(FlowMeshError) as refused:
        await secrets.read(namespace, ("HF_TOKEN=hf/token",))
    assert refused.value.where == f"secret {namespace}/hf"
    for command in refused.value.remedy.split(" && "):
        api_server.kubectl(*command.split()[1:])
    assert await secrets.read(namespace, ("HF_TOKEN=hf/token",)) == {"HF_TOKEN": "s3cret"}
    with pytest.raises(FlowMeshError, match="it has no key 'pass'; its keys: token, user"):
        await secrets.read(namespace, ("HF_TOKEN=hf/pass",))
    assert "s3cret" not in json.dumps(str(refused.value))
