"""The network policies of an installation over the matrix of (from, to, port)."""

import itertools
import socket
import time
from collections.abc import Iterator

import pytest
from tests.charts.cluster_peers import (
    API,
    BLOBS,
    BLOBS_POD,
    CLIENT,
    CODE,
    DNS,
    DNS_POD,
    GATEWAY,
    HEALTH,
    HUBS,
    INTERNET,
    METADATA,
    NEIGHBOUR,
    NODE,
    NODE_DNS,
    OPERATOR,
    OTHER_SYSTEM,
    PEER_ONE,
    PEER_TWO,
    PEERS,
    PRIVATE,
    PROBE,
    PROBES,
    REQUESTS,
    ROUTER_POD,
    STORE,
    STORE_POD,
    TENANT,
    TEST,
    WORKER,
    policies,
)
from tests.charts.network_evaluator import Peer, allowed
from tests.charts.rendering import NAMESPACE, find, objects

pytestmark = pytest.mark.slow

STRICT = ("networkPolicy.restrictClients=true",)
Edge = tuple[Peer, Peer, int]
NEEDED: list[Edge] = [
    (WORKER, OPERATOR, GATEWAY), (CODE, OPERATOR, GATEWAY), (TEST, OPERATOR, GATEWAY),
    (CLIENT, OPERATOR, GATEWAY), (WORKER, STORE_POD, STORE), (CODE, STORE_POD, STORE),
    (OPERATOR, STORE_POD, STORE), (OPERATOR, NODE, API), (OPERATOR, DNS_POD, DNS),
    (WORKER, BLOBS_POD, BLOBS), (CODE, BLOBS_POD, BLOBS), (BLOBS_POD, STORE_POD, STORE),
    (BLOBS_POD, DNS_POD, DNS), (WORKER, DNS_POD, DNS), (CODE, DNS_POD, DNS),
    (PROBE, DNS_POD, DNS), (WORKER, INTERNET, 443), (WORKER, ROUTER_POD, HUBS),
    (CODE, ROUTER_POD, HUBS), (ROUTER_POD, OPERATOR, GATEWAY), (ROUTER_POD, DNS_POD, DNS),
    (CLIENT, ROUTER_POD, REQUESTS), (TEST, ROUTER_POD, REQUESTS), (CLIENT, ROUTER_POD, PROBES),
    (PEER_ONE, PEER_TWO, PEERS), (PEER_TWO, PEER_ONE, PEERS), (PEER_ONE, ROUTER_POD, HUBS),
]  # fmt: skip
FORBIDDEN: list[Edge] = [
    *((pod, to, DNS) for pod in (OPERATOR, WORKER, CODE, PROBE)
      for to in (TENANT, OTHER_SYSTEM, INTERNET, NODE_DNS, NEIGHBOUR)),
    *((pod, STORE_POD, STORE) for pod in (TENANT, CLIENT, NEIGHBOUR, PROBE, NODE, INTERNET)),
    *((CODE, to, port) for to in (INTERNET, PRIVATE, METADATA, NODE) for port in (80, 443, API)),
    *((WORKER, to, 443) for to in (PRIVATE, METADATA, NODE, STORE_POD, OPERATOR)),
    *((pod, OPERATOR, HEALTH) for pod in (TENANT, CLIENT, WORKER, CODE, NEIGHBOUR, INTERNET)),
    *((pod, to, 1234) for pod in (TENANT, OPERATOR, CLIENT) for to in (WORKER, CODE, STORE_POD)),
    *((STORE_POD, to, 443) for to in (INTERNET, OPERATOR, PRIVATE)),
    *((pod, BLOBS_POD, BLOBS) for pod in (TENANT, CLIENT, NEIGHBOUR, PROBE, OPERATOR, INTERNET)),
    *((BLOBS_POD, to, port) for to in (INTERNET, PRIVATE, METADATA, NODE) for port in (443, API)),
    *((pod, ROUTER_POD, port) for pod in (TENANT, NEIGHBOUR, PROBE, OPERATOR, BLOBS_POD, INTERNET)
      for port in (HUBS, PROBES)),
    *((ROUTER_POD, to, port) for to in (WORKER, CODE, STORE_POD, BLOBS_POD, INTERNET, PRIVATE, NODE)
      for port in (443, API, STORE, BLOBS, HUBS)),
    *((WORKER, ROUTER_POD, port) for port in (REQUESTS, PROBES)),
    *((pod, PEER_ONE, PEERS) for pod in (WORKER, CODE, ROUTER_POD, OPERATOR, TENANT, NEIGHBOUR,
      CLIENT, PROBE, NODE, INTERNET)),
    *((PEER_ONE, to, PEERS) for to in (WORKER, CODE, TENANT, NODE, INTERNET)),
    *((PEER_ONE, PEER_TWO, port) for port in (443, GATEWAY, HUBS)),
    (PROBE, OPERATOR, GATEWAY), (OPERATOR, INTERNET, 80), (BLOBS_POD, OPERATOR, GATEWAY),
]  # fmt: skip
CLOSED_WHERE_STRICT = (TENANT, NEIGHBOUR, INTERNET, NODE)


def named(edges: list[Edge]) -> dict[str, bool]:
    return {f"{source.name} to {target.name}:{port}": True for source, target, port in edges}


@pytest.mark.parametrize("values", [(), STRICT], ids=["open", "strict"])
def test_network_policies_allow_only_the_required_connections(values: tuple[str, ...]) -> None:
    known = policies(*values)
    lost = [e for e in NEEDED if not allowed(known, *e, "UDP" if e[2] == DNS else "TCP")]
    assert named(lost) == {}
    open_ = [e for e in FORBIDDEN if any(allowed(known, *e, p) for p in ("TCP", "UDP"))]
    assert named(open_) == {}


@pytest.mark.parametrize("source", CLOSED_WHERE_STRICT, ids=lambda peer: peer.name)
def test_the_gateway_is_open_to_all_unless_clients_are_restricted(source: Peer) -> None:
    assert allowed(policies(), source, OPERATOR, GATEWAY)
    assert not allowed(policies(*STRICT), source, OPERATOR, GATEWAY)


def test_client_networks_and_dns_caches_are_configured_by_values() -> None:
    known = policies(*STRICT, "networkPolicy.clientCidrs[0]=93.184.216.0/24")
    assert allowed(known, INTERNET, OPERATOR, GATEWAY)
    known = policies(dns=("169.254.20.10/32",))
    for pod in (OPERATOR, WORKER, CODE, PROBE):
        assert allowed(known, pod, NODE_DNS, DNS, "UDP")
        assert not allowed(known, pod, METADATA, DNS, "UDP")
    (container,) = find("Deployment", "flowmesh-operator", "networkPolicy.dns[0]=1.2.3.4/32")[
        "spec"
    ]["template"]["spec"]["containers"]
    told = {e["name"]: e.get("value") for e in container["env"]}
    assert told["FLOWMESH_WORKER_DNS_CIDRS"] == "1.2.3.4/32"


def test_probes_come_from_the_nodes_networks() -> None:
    known = policies("clusterRanges.nodes[0]=192.168.7.0/24")
    assert allowed(known, NODE, OPERATOR, HEALTH)
    assert not allowed(known, TENANT, OPERATOR, HEALTH)


def probe_after(monkeypatch: pytest.MonkeyPatch, connects: Iterator[bool]) -> object:
    """Runs the chart's probe, whose connections open or do not; returns what it exits with."""

    def connect(where: tuple[str, int], timeout_s: float) -> socket.socket:
        assert where == (f"flowmesh-gateway.{NAMESPACE}.svc", GATEWAY)
        if not next(connects):
            raise ConnectionRefusedError
        return socket.socket()

    monkeypatch.setattr(socket, "create_connection", connect)
    monkeypatch.setattr(time, "sleep", lambda _: None)
    (container,) = find("Pod", "flowmesh-network-test")["spec"]["containers"]
    with pytest.raises(SystemExit) as ended:
        exec(compile(container["args"][0], "probe", "exec"), {})
    return ended.value.code


def test_the_helm_test_probe_reports_where_policies_are_not_enforced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said = str(probe_after(monkeypatch, itertools.repeat(True)))
    assert "this cluster's CNI enforces no NetworkPolicy" in said
    late = itertools.chain([True, True], itertools.repeat(False))
    assert probe_after(monkeypatch, late) == 0, "a CNI may apply a policy after the pod's start"
    off = {(o["kind"], o["metadata"]["name"]) for o in objects("networkPolicy.enabled=false")}
    assert ("Pod", "flowmesh-network-test") not in off
    assert not any(kind == "NetworkPolicy" for kind, _ in off)
