"""Tokens of pools, reviewed by a real API server; answers are cached, refusals have a reason."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration
from tests.flowmesh_operator.api_server import ApiServer

from flowmesh_control.auth.worker_tokens import WorkerIdentity
from flowmesh_core.errors import FlowMeshError
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


async def test_a_service_account_token_identifies_its_pool_and_is_reviewed_once(
    api: KubeClient, api_server: ApiServer, namespace: str
) -> None:
    tokens = ReviewedWorkerTokens(api, namespace=namespace)
    good = token(api_server, namespace, "flowmesh-pool-cpu")
    for _ in range(5):
        assert await tokens.identity_of(good) == CPU
    assert api.requests[REVIEWS] == 1


async def test_every_other_token_is_refused(
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


async def test_the_token_of_a_deleted_account_is_refused_once_the_cached_review_expires(
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


async def test_a_fixed_token_is_valid_for_any_pool_without_a_review(api: KubeClient) -> None:
    tokens = ReviewedWorkerTokens(api, namespace="flowmesh", fixed="secret")
    assert await tokens.identity_of("secret") == WorkerIdentity("*")
    assert api.requests[REVIEWS] == 0


async def test_while_the_api_server_is_unavailable_a_token_is_not_reported_as_invalid(
    api: KubeClient, api_server: ApiServer, namespace: str
) -> None:
    tokens = ReviewedWorkerTokens(api, namespace=namespace)
    good = token(api_server, namespace, "flowmesh-pool-cpu")
    with api_server.away(), pytest.raises(ReviewUnavailableError, match="did not review"):
        await tokens.identity_of(good)
    assert await tokens.identity_of(good) == CPU


class Reviews:
    """Reviews every token as one of a pod of the pool ``cpu``; the pod may be gone."""

    def __init__(self, pod: str, created: str | None) -> None:
        self.pod = pod
        self.created = created

    async def create(self, *_: Any) -> dict[str, Any]:
        user = {
            "username": "system:serviceaccount:flowmesh:flowmesh-pool-cpu",
            "extra": {"authentication.kubernetes.io/pod-name": [self.pod]},
        }
        return {"status": {"authenticated": True, "audiences": ["flowmesh"], "user": user}}

    async def get(self, *where: str) -> dict[str, Any]:
        assert where == ("", "v1", "pods", "flowmesh", self.pod)
        if self.created is None:
            raise FlowMeshError("there is no such pod")
        return {"metadata": {"creationTimestamp": self.created}}


async def test_a_token_of_a_pod_identifies_the_pod_and_its_age() -> None:
    tokens = ReviewedWorkerTokens(Reviews("cpu-x", "2026-01-02T03:04:05Z"), namespace="flowmesh")
    found = await tokens.identity_of("token")
    assert found == WorkerIdentity("cpu", "cpu-x", 1767323045.0, declared=True)


async def test_if_its_pod_cannot_be_read_the_worker_retries() -> None:
    tokens = ReviewedWorkerTokens(Reviews("cpu-x", None), namespace="flowmesh")
    with pytest.raises(ReviewUnavailableError, match="no such pod") as refused:
        await tokens.identity_of("token")
    assert "get pods" in refused.value.remedy


async def test_a_token_that_is_bound_to_a_pod_names_it(
    api: KubeClient, api_server: ApiServer, namespace: str
) -> None:
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "flowmesh-pool-cpu-abc", "namespace": namespace},
        "spec": {
            "serviceAccountName": "flowmesh-pool-cpu",
            "containers": [{"name": "a", "image": "none"}],
        },
    }
    api_server.kubectl("create", "serviceaccount", "flowmesh-pool-cpu", "-n", namespace)
    created_s = time.time()
    api_server.kubectl("create", "-f", "-", given=json.dumps(pod))
    words = ("create", "token", "flowmesh-pool-cpu", "-n", namespace, "--audience=flowmesh")
    bound = ("--bound-object-kind=Pod", "--bound-object-name=flowmesh-pool-cpu-abc")
    token_of_pod = api_server.kubectl(*words, *bound).stdout.strip()
    found = await ReviewedWorkerTokens(api, namespace=namespace).identity_of(token_of_pod)
    assert found is not None
    assert (found.pool, found.pod, found.declared) == ("cpu", "flowmesh-pool-cpu-abc", True)
    assert found.started_s is not None
    assert abs(found.started_s - created_s) < 60
