"""Objects of pools on a real API server: written only if they differ."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from e2e.cluster.keda import as_list, definitions
from kubernetes.aio.client import ApiClient, Configuration
from tests.flowmesh_operator.api_server import ApiServer
from tests.flowmesh_operator.pool_builder import AROUND, make_pool, pool_object

from flowmesh_core.spec.pool import FlowMeshWorkerPool
from flowmesh_operator.kube.client import KubeClient
from flowmesh_operator.kube.kinds import DEPLOYMENTS
from flowmesh_operator.pools.reconcile import Reconciler

pytestmark = pytest.mark.slow
NAME = "flowmesh-pool-cpu"
WRITES = ("apply", "patch", "create", "delete", "update")


@pytest.fixture
async def api(api_server: ApiServer) -> AsyncIterator[KubeClient]:
    configuration = Configuration(host=api_server.url)
    configuration.ssl_ca_cert = str(api_server.certificates.authority)
    configuration.api_key = {"BearerToken": f"Bearer {api_server.token_of('admin')}"}
    async with ApiClient(configuration) as client:
        yield KubeClient(client)


class Bench:
    """A reconciler, and a pool of the API server."""

    def __init__(self, server: ApiServer, api: KubeClient, namespace: str) -> None:
        self.server, self.api, self.namespace = server, api, namespace
        self.around = replace(AROUND, namespace=namespace)
        self.reconciler = Reconciler(api, self.around)

    def pool(self, **spec: Any) -> FlowMeshWorkerPool:
        given = pool_object(spec, "cpu", self.namespace)
        given["metadata"] = {"name": "cpu", "namespace": self.namespace}
        self.server.kubectl("apply", "-f", "-", given=json.dumps(given))
        uid = self.server.get("fmwp", "cpu", "-n", self.namespace)["metadata"]["uid"]
        made = make_pool(spec, "cpu", self.namespace)
        return made.model_copy(update={"metadata": made.metadata.model_copy(update={"uid": uid})})

    async def bring(self, pool: FlowMeshWorkerPool) -> int:
        """Reconciles once; returns the number of writes."""
        before = self.writes()
        await self.reconciler.observe()
        await self.reconciler.look_for_keda()
        await self.reconciler.apply(pool)
        return self.writes() - before

    def writes(self) -> int:
        return sum(n for (verb, _), n in self.api.requests.items() if verb in WRITES)

    async def scale(self, replicas: int) -> None:
        size = {"spec": {"replicas": replicas}}
        await self.api.patch(*DEPLOYMENTS, self.namespace, NAME, size, subresource="scale")

    def deployment(self) -> dict[str, Any]:
        return self.server.get("deployment", NAME, "-n", self.namespace)

    def replicas(self) -> int:
        return int(self.deployment()["spec"]["replicas"])


@pytest.fixture
def bench(api_server: ApiServer, api: KubeClient, namespace: str) -> Bench:
    return Bench(api_server, api, namespace)


async def test_a_pools_objects_are_written_once_and_not_again(bench: Bench) -> None:
    pool = bench.pool(maxReplicas=3)
    assert await bench.bring(pool) == 4
    for kind in ("serviceaccount", "networkpolicy", "poddisruptionbudget", "deployment"):
        owner = bench.server.get(kind, NAME, "-n", bench.namespace)["metadata"]["ownerReferences"]
        assert owner[0]["uid"] == pool.metadata.uid
    assert bench.replicas() == 0
    for _ in range(3):
        assert await bench.bring(pool) == 0


async def test_another_leader_finds_everything_in_order_and_changes_nothing(bench: Bench) -> None:
    pool = bench.pool()
    await bench.bring(pool)
    before = bench.deployment()["metadata"]["resourceVersion"]
    bench.reconciler = Reconciler(bench.api, bench.around)
    await bench.bring(pool)
    assert bench.deployment()["metadata"]["resourceVersion"] == before
    assert await bench.bring(pool) == 0


async def test_the_size_is_left_to_the_autoscaler(bench: Bench) -> None:
    pool = bench.pool(maxReplicas=5)
    await bench.bring(pool)
    await bench.scale(3)
    await bench.bring(pool)
    changed = bench.pool(maxReplicas=5, userCode=True)
    assert await bench.bring(changed) == 1
    assert bench.replicas() == 3
    bench.reconciler = Reconciler(bench.api, bench.around)
    await bench.bring(changed)
    assert bench.replicas() == 3
    await bench.scale(0)
    await bench.bring(bench.pool(maxReplicas=5))
    assert bench.replicas() == 0


async def test_a_pool_that_was_not_scaled_yet_keeps_its_initial_size_when_it_changes(
    bench: Bench,
) -> None:
    await bench.bring(bench.pool(maxReplicas=5))
    await bench.bring(bench.pool(maxReplicas=5, userCode=True))
    assert bench.replicas() == 0


async def test_a_fixed_pool_owns_its_size_and_releases_it_when_the_mode_changes(
    bench: Bench,
) -> None:
    await bench.bring(bench.pool(maxReplicas=3, autoscaling={"mode": "fixed"}))
    assert bench.replicas() == 3
    await bench.scale(1)
    await bench.bring(bench.pool(maxReplicas=2, autoscaling={"mode": "fixed"}))
    assert bench.replicas() == 2
    await bench.bring(bench.pool(maxReplicas=9))
    assert bench.replicas() == 2
    await bench.scale(4)
    await bench.bring(bench.pool(maxReplicas=9, userCode=True))
    assert bench.replicas() == 4


async def test_objects_that_another_client_changed_or_deleted_are_restored(bench: Bench) -> None:
    pool = bench.pool()
    await bench.bring(pool)
    at = ("-n", bench.namespace)
    bench.server.kubectl("delete", "networkpolicy", NAME, *at)
    patch = json.dumps({"spec": {"template": {"spec": {"automountServiceAccountToken": True}}}})
    bench.server.kubectl("patch", "deployment", NAME, "-p", patch, *at)
    assert await bench.bring(pool) == 2
    assert bench.server.get("networkpolicy", NAME, *at)
    template = bench.deployment()["spec"]["template"]["spec"]
    assert template["automountServiceAccountToken"] is False
    assert await bench.bring(pool) == 0


async def test_a_field_that_the_pool_no_longer_sets_is_removed(bench: Bench) -> None:
    await bench.bring(bench.pool(nodeSelector={"disk": "nvme"}, userCode=True))
    await bench.bring(bench.pool())
    template = bench.deployment()["spec"]["template"]["spec"]
    assert "nodeSelector" not in template
    assert "initContainers" not in template


async def test_a_horizontal_autoscaler_is_created_and_deleted_with_the_mode(bench: Bench) -> None:
    by_hpa = bench.pool(maxReplicas=4, autoscaling={"mode": "hpa"})
    assert await bench.bring(by_hpa) == 5
    found = bench.server.get("hpa", NAME, "-n", bench.namespace)["spec"]
    assert (found["minReplicas"], found["maxReplicas"]) == (0, 4)
    assert await bench.bring(by_hpa) == 0
    await bench.scale(3)  # as the autoscaler would
    assert await bench.bring(by_hpa) == 0
    assert await bench.bring(bench.pool(maxReplicas=4)) == 1
    assert bench.server.get("hpa", "-n", bench.namespace)["items"] == []
    assert bench.replicas() == 3


async def test_a_horizontal_autoscaler_removes_no_worker_above_a_lowered_maximum(
    bench: Bench,
) -> None:
    by_hpa = {"autoscaling": {"mode": "hpa"}}
    await bench.bring(bench.pool(maxReplicas=4, **by_hpa))
    await bench.scale(3)
    low = bench.pool(maxReplicas=1, **by_hpa)
    for size, most in ((3, 3), (2, 2), (0, 1)):
        await bench.scale(size)
        await bench.bring(low)
        found = bench.server.get("hpa", NAME, "-n", bench.namespace)["spec"]
        assert found["maxReplicas"] == most


async def test_a_scaled_object_is_created_and_deleted_with_the_mode(bench: Bench) -> None:
    """With KEDA's own definitions, which refuse unknown fields."""
    keda = bench.pool(maxReplicas=4, autoscaling={"mode": "keda"})
    assert await bench.bring(keda) == 4
    assert not bench.reconciler.keda
    given = as_list(definitions())
    # Client-side, kubectl would note all of a definition in an annotation, which is too large.
    bench.server.kubectl("apply", "--server-side", "-f", "-", given=given)
    wait = ("wait", "--for=condition=Established", "--timeout=180s", "-f", "-")
    bench.server.kubectl(*wait, given=given)
    at = ("-n", bench.namespace)
    try:
        assert await bench.bring(keda) == 2
        assert bench.reconciler.keda
        found = bench.server.get("scaledobject", NAME, *at)["spec"]
        assert (found["minReplicaCount"], found["maxReplicaCount"]) == (0, 4)
        (trigger,) = found["triggers"]
        shown = bench.server.get("triggerauthentication", trigger["authenticationRef"]["name"], *at)
        parameters = {t["parameter"] for t in shown["spec"]["secretTargetRef"]}
        assert parameters == {"bearerToken", "ca", "cert", "key"}
        # As KEDA does to each that it looks at.
        bench.server.kubectl(
            "label", "scaledobject", NAME, f"scaledobject.keda.sh/name={NAME}", *at
        )
        assert await bench.bring(keda) <= 1
        assert await bench.bring(keda) == 0
        assert await bench.bring(bench.pool(maxReplicas=4)) == 2
        for kind in ("scaledobjects", "triggerauthentications"):
            assert bench.server.get(kind, *at)["items"] == []
    finally:
        bench.server.kubectl("delete", "-f", "-", given=given)
    assert await bench.bring(keda) == 0
    assert not bench.reconciler.keda
