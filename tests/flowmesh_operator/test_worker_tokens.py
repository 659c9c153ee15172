"""Tokens of pools, reviewed by a real API server; answers are cached, refusals have a reason."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration
from tests.flowmesh_operator.api_server import ApiServer

from flowmesh_control.auth.worker_tokens import WorkerIdentity
from flowmesh_operator.access.worker_tokens import ReviewedWorkerTokens, ReviewUnavailableError
from flowmesh_operator.kube.client import KubeClient

pytestmark = pytest.mark.slow
REVIEWS = ("create", "tokenreviews")
CPU = WorkerIdentity("cpu", declared=True)


@pytest.fixture
async def api(api_server: ApiServer) -> AsyncIterator[KubeClient]:
    configuration = Configuration()
    await config.load_kube_config(str(api_server.kubeconfig), client_configuration=configuration)
    async with ApiClient(configuration) as client:
        yield KubeClient(client).with_single_try(4.0)


def token(server: ApiServer, namespace: str, account: str, audience: str = "flowmesh") -> str:
    server.kubectl("create", "serviceaccount", account, "-n", namespace, ok=False)
    words = ("create", "token", account, "-n", namespace)
    audiences = (f"--audience={audience}",) if audience else ()
    return server.kubectl(*words, *audiences).stdout.strip()


async def test_a_service_account_of_a_pool_is_the_pools_and_is_asked_for_once(
    api: KubeClient, api_server: ApiServer, namespace: str
) -> None:
    tokens = ReviewedWorkerTokens(api, namespace=namespace)
    good = token(api_server, namespace, "flowmesh-pool-cpu")
    for _ in range(5):
        assert await tokens.identity_of(good) == CPU
    assert api.requests[REVIEWS] == 1


async def test_every_other_token_is_nobodys(
    api: KubeClient, api_server: ApiServer, namespace: str
) -> None:
    tokens = ReviewedWorkerTokens(api, namespace=namespace)
    elsewhere = api_server.namespace()
    for wrong in (
        token(api_server, elsewhere, "flowmesh-pool-cpu"),
        token(api_server, namespace, "flowmesh-pool-cpu", audience="another"),
        token(api_server, namespace, "flowmesh-pool-cpu", audience=""),
        token(api_server, namespace, "flowmesh-operator"),
        token(api_server, namespace, "flowmesh-pool-"[:-1]),
        api_server.token_of("admin"),
        "no token at all",
        "",
    ):
        assert await tokens.identity_of(wrong) is None


async def test_the_token_of_an_account_that_is_gone_is_refused_once_the_answer_is_old(
    api: KubeClient, api_server: ApiServer, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flowmesh_operator.access.worker_tokens.YES_S", 0.0)
    tokens = ReviewedWorkerTokens(api, namespace=namespace)
    good = token(api_server, namespace, "flowmesh-pool-cpu")
    assert await tokens.identity_of(good) == CPU
    api_server.kubectl("delete", "serviceaccount", "flowmesh-pool-cpu", "-n", namespace)
    async with asyncio.timeout(180):  # the API server itself keeps its answers for ten seconds
        while await tokens.identity_of(good) is not None:  # noqa: ASYNC110 - nobody is told
            await asyncio.sleep(0.2)


async def test_a_fixed_token_is_for_any_pool_and_asks_nobody(api: KubeClient) -> None:
    tokens = ReviewedWorkerTokens(api, namespace="flowmesh", fixed="secret")
    assert await tokens.identity_of("secret") == WorkerIdentity("*")
    assert api.requests[REVIEWS] == 0


async def test_while_the_api_server_is_away_nobody_is_told_that_the_token_is_wrong(
    api: KubeClient, api_server: ApiServer, namespace: str
) -> None:
    tokens = ReviewedWorkerTokens(api, namespace=namespace)
    good = token(api_server, namespace, "flowmesh-pool-cpu")
    with api_server.away(), pytest.raises(ReviewUnavailableError, match="did not review"):
        await tokens.identity_of(good)
    assert await tokens.identity_of(good) == CPU
