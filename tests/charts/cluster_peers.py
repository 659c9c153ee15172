"""The pods and addresses of the network policies' tests, and the policies of an installation."""

from functools import cache
from typing import Any

from tests.charts.network_evaluator import Peer
from tests.charts.rendering import NAMESPACE, objects
from tests.flowmesh_operator.pool_builder import make_pool

from flowmesh_operator.kube.labels import PEERS_LABEL, selector_labels
from flowmesh_operator.pod_environment import PodEnvironment
from flowmesh_operator.pools.network import PEER_PORT, network_policy

GATEWAY, HEALTH, BLOBS, STORE, DNS, API = 8470, 8471, 8472, 7070, 53, 6443
REQUESTS, HUBS, PROBES, PEERS = 8480, 8481, 8482, PEER_PORT


def part(component: str) -> dict[str, str]:
    return {"app.kubernetes.io/name": "flowmesh", "app.kubernetes.io/component": component}


def inside(name: str, number: int, labels: dict[str, str]) -> Peer:
    return Peer(name, f"10.244.0.{number}", NAMESPACE, labels, {"name": NAMESPACE})


OPERATOR = inside("operator", 1, part("operator"))
STORE_POD = inside("store", 2, part("store"))
BLOBS_POD = inside("blob service", 10, part("blobs"))
ROUTER_POD = inside("router", 11, part("router"))
WORKER = inside("worker", 3, selector_labels("cpu"))
CODE = inside("code worker", 4, selector_labels("code"))
PEER_ONE = inside("worker with peers", 12, {**selector_labels("one"), **PEERS_LABEL})
PEER_TWO = inside(
    "worker of another pool with peers", 13, {**selector_labels("two"), **PEERS_LABEL}
)
PROBE = inside("probe", 5, part("network-test"))
TEST = inside("test", 6, part("test"))
NEIGHBOUR = inside("neighbour", 7, {"app": "other"})
KUBE_SYSTEM = {"kubernetes.io/metadata.name": "kube-system"}
DNS_POD = Peer("dns", "10.244.0.8", "kube-system", {"k8s-app": "kube-dns"}, KUBE_SYSTEM)
OTHER_SYSTEM = Peer("other system", "10.244.0.9", "kube-system", {"k8s-app": "x"}, KUBE_SYSTEM)
TENANT = Peer("tenant", "10.244.1.1", "team", {"k8s-app": "kube-dns"}, {"name": "team"})
CLIENT = Peer("client", "10.244.1.2", "tools", {}, {"flowmesh.dev/client": "true"})
NODE = Peer("node", "192.168.7.1")
NODE_DNS = Peer("DNS cache of the node", "169.254.20.10")
METADATA = Peer("metadata service", "169.254.169.254")
INTERNET = Peer("internet", "93.184.216.34")
PRIVATE = Peer("private network", "10.99.0.1")


@cache
def policies(*values: str, dns: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """The chart's policies, and those of pools with egress, user code and peers."""
    given = [*values, *(f"networkPolicy.dns[{n}]={cidr}" for n, cidr in enumerate(dns))]
    around = PodEnvironment(
        NAMESPACE,
        f"wss://flowmesh-gateway.{NAMESPACE}.svc:{GATEWAY}",
        f"s3://flowmesh?endpoint=http://flowmesh-store.{NAMESPACE}.svc:{STORE}",
        blob_service=f"https://flowmesh-blobs.{NAMESPACE}.svc:{BLOBS}",
        router_hubs=f"tls:flowmesh-router-hubs.{NAMESPACE}.svc:{HUBS}",
        dns_cidrs=dns,
    )
    pools = (
        make_pool({"egress": [{"cidr": "0.0.0.0/0", "ports": [443]}]}, "cpu", NAMESPACE),
        make_pool({"userCode": True}, "code", NAMESPACE),
        make_pool({"serving": {"peers": True}}, "one", NAMESPACE),
        make_pool({"serving": {"peers": True}, "userCode": True}, "two", NAMESPACE),
    )
    rendered = [o for o in objects(*given) if o["kind"] == "NetworkPolicy"]
    return [*rendered, *(network_policy(pool, around) for pool in pools)]
