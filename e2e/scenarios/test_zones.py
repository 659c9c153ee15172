"""Work goes to the zone of a worker that has its content.

The cluster has one node, whose label says its zone; Kubernetes copies that label to each pod when
it is scheduled, over one of the pod's template. So the node moves to another zone between pods.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from e2e.harness.fabric import NAMESPACE, Fabric
from e2e.harness.kube import until
from e2e.harness.machine import Machine
from e2e.harness.pools import code_pool_spec, pool
from e2e.harness.user import User

ZONE = "topology.kubernetes.io/zone"
ZONES = {"zone-far": "zone-b", "zone-holder": "zone-a", "zone-near": "zone-a"}
"""Pools of one worker. Of equal ones the first by name would be chosen, which is the far one."""
IN_ZONES = {
    "steps": [
        {
            "name": "make",
            "uses": "data.sql",
            "with": {"query": "select md5(n::text) as t from range(100000) r(n)"},
            "resources": {"labels": {"role": "holder"}},
        },
        {
            "name": "use",
            "uses": "data.sql",
            "inputs": {"t": "make.rows"},
            "with": {"query": "select max(t) as t from t"},
            "resources": {"labels": {"role": "user"}},
        },
    ],
}


@pytest.fixture
def move(fabric: Fabric, machine: Machine) -> Iterator[Callable[[str], None]]:
    """Puts the node into another zone, for pods that are scheduled from then on."""
    del machine  # only the e2e cluster's node is changed
    (node,) = fabric.kube.items("nodes")
    name, before = node["metadata"]["name"], node["metadata"]["labels"][ZONE]

    def to(zone: str) -> None:
        fabric.kube.run("label", "node", name, f"{ZONE}={zone}", "--overwrite")

    yield to
    to(before)


def test_work_goes_to_the_zone_that_has_its_content(
    fabric: Fabric, move: Callable[[str], None], tenant: Callable[[], str], tmp_path: Path
) -> None:
    kube, here = fabric.kube, f"--namespace={NAMESPACE}"
    user = User(fabric, tenant(), tmp_path)
    user.begin()
    with ExitStack() as pools:
        for name, zone in ZONES.items():
            move(zone)
            role = "holder" if name == "zone-holder" else "user"
            spec = code_pool_spec(
                fabric,
                userCode=False,
                resources={"cpu": 0.25, "memory": "1Gi"},
                labels={"role": role},
            )
            pools.enter_context(pool(fabric, name, spec))
            until(lambda name=name: zones(fabric, name) != [], f"the pod of {name} has a node")
        kube.run("wait", *(f"fmwp/{n}" for n in ZONES), here, "--for=condition=Ready",
                 "--timeout=600s")  # fmt: skip
        assert {name: zones(fabric, name) for name in ZONES} == {n: [z] for n, z in ZONES.items()}
        fabric.submit(user.namespace, "zones", IN_ZONES)
        fabric.completed(user.namespace, "zones")
        (attempt,) = user.answer("explain", "use")["attempts"]
        kube.run("delete", "fmwp", *ZONES, here, "--wait=false")
    locality = {p["worker"].rsplit("-", 2)[0]: p.get("locality", 0.0) for p in attempt["placed"]}
    assert locality == {"flowmesh-pool-zone-near": 0.2, "flowmesh-pool-zone-far": 0.0}
    assert attempt["worker"].startswith("flowmesh-pool-zone-near-")


def zones(fabric: Fabric, pool: str) -> list[str]:
    """Returns the zones of the pods of a pool that have a node."""
    return [p["metadata"]["labels"][ZONE] for p in fabric.workers(pool) if "nodeName" in p["spec"]]
