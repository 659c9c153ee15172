"""One pool of workers, tenants and a network probe, which all attacks share to save time."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from e2e.harness.fabric import NAMESPACE, RELEASE, Fabric
from e2e.harness.pools import code_pool_spec, pool
from e2e.harness.user import User

if TYPE_CHECKING:
    import subprocess

CLUSTER_ADDRESSES = "10.0.0.0/8"


@pytest.fixture(scope="package")
def network_probe(
    fabric: Fabric,
) -> Iterator["Future[subprocess.CompletedProcess[str]]"]:
    """Starts the chart's test of network policies, which takes half a minute."""
    words = ("test", RELEASE, "--filter=name=flowmesh-network-test", "--timeout=600s")
    with ThreadPoolExecutor(1) as threads:
        yield threads.submit(fabric.kube.program, "helm", "--namespace", NAMESPACE, *words)
    where = f"--namespace={NAMESPACE}"
    fabric.kube.run("delete", "pod", "flowmesh-network-test", where, "--ignore-not-found")


@pytest.fixture(scope="package", autouse=True)
def attacked_pool(
    fabric: Fabric, network_probe: "Future[subprocess.CompletedProcess[str]]"
) -> Iterator[str]:
    """Yields a pool of workers that run users' code and may call addresses of the cluster."""
    env = [{"name": "FLOWMESH_HTTP_ALLOW", "value": CLUSTER_ADDRESSES}]
    spec = code_pool_spec(
        fabric,
        maxReplicas=2,
        podTemplate={"spec": {"containers": [{"name": "worker", "env": env}]}},
    )
    with pool(fabric, "attacked", spec) as name:
        yield name


@pytest.fixture(scope="package")
def attacker(fabric: Fabric, tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    """Yields the tenant whose code runs first on the pool's worker."""
    yield from _tenant(fabric, "attacker", tmp_path_factory.mktemp("attacker"))


@pytest.fixture(scope="package")
def owner(fabric: Fabric, tmp_path_factory: pytest.TempPathFactory) -> Iterator[User]:
    """Yields the tenant that is attacked."""
    yield from _tenant(fabric, "owner", tmp_path_factory.mktemp("owner"))


def _tenant(fabric: Fabric, name: str, folder: Path) -> Iterator[User]:
    fabric.kube.namespace(name)
    user = User(fabric, name, folder)
    user.begin()
    yield user
    fabric.kube.run("delete", "namespace", name, "--wait=false")
