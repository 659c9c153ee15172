"""The NetworkPolicy of a pool: egress only to what a worker needs, and no ingress.

Workers accept no connections, but for those of pools with ``serving.peers`` from each other, on the
port of their hubs. A range of the pool's own excludes addresses that are not public,
unless it lies among them; a bucket may be private, so its ranges exclude metadata services only.
"""

from typing import Any

from flowmesh_core.spec.pool import EgressSpec, FlowMeshWorkerPool
from flowmesh_operator.kube.labels import PEERS_LABEL, object_metadata, selector_labels
from flowmesh_operator.pod_environment import PodEnvironment
from flowmesh_operator.pools.public_addresses import not_public_within

PEER_PORT = 8483
"""Where a hub takes values of hubs of other workers."""
_DNS_PORT = 53
_CLUSTER_DNS: dict[str, Any] = {
    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}},
    "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}},
}
_EVERYWHERE = {"0.0.0.0/0": ["169.254.0.0/16"], "::/0": ["fe80::/10", "fd00:ec2::254/128"]}
"""Ranges with the link-local addresses of metadata services, which serve credentials."""

Json = dict[str, Any]


def network_policy(pool: FlowMeshWorkerPool, around: PodEnvironment) -> Json:
    """Returns the policy: default deny; egress to DNS, gateway, routers, store, the pool's own."""
    peers: list[Json] = [{"podSelector": {"matchLabels": PEERS_LABEL}}]
    has_peers = pool.spec.serving.peers
    rules = [
        _dns(around),
        _gateway(around),
        *_blob_service(around),
        *_routers(around),
        *_store(around),
        *map(_own, pool.spec.egress),
        *([{"to": peers, "ports": [_tcp(PEER_PORT)]}] if has_peers else []),
    ]
    ingress: Json = {"ingress": [{"from": peers, "ports": [_tcp(PEER_PORT)]}]} if has_peers else {}
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": object_metadata(pool),
        "spec": {
            "podSelector": {"matchLabels": selector_labels(pool.metadata.name)},
            "policyTypes": ["Ingress", "Egress"],
            **ingress,
            "egress": rules,
        },
    }


def _dns(environment: PodEnvironment) -> Json:
    ports = [{"port": _DNS_PORT, "protocol": protocol} for protocol in ("UDP", "TCP")]
    ranges = [{"ipBlock": {"cidr": cidr}} for cidr in environment.dns_cidrs]
    return {"to": [_CLUSTER_DNS, *ranges], "ports": ports}


def _gateway(environment: PodEnvironment) -> Json:
    return {
        "to": [{"podSelector": {"matchLabels": environment.operator_labels}}],
        "ports": [_tcp(environment.gateway_port)],
    }


def _blob_service(environment: PodEnvironment) -> list[Json]:
    if not environment.blob_service:
        return []
    pods = {"podSelector": {"matchLabels": environment.blob_service_labels}}
    return [{"to": [pods], "ports": [_tcp(environment.blob_service_port)]}]


def _routers(environment: PodEnvironment) -> list[Json]:
    if not environment.router_port:
        return []
    pods = {"podSelector": {"matchLabels": environment.router_labels}}
    return [{"to": [pods], "ports": [_tcp(environment.router_port)]}]


def _store(environment: PodEnvironment) -> list[Json]:
    if environment.store_path:
        return []  # a mounted volume
    # A policy applies to the pod behind a Service, in this namespace: a CIDR would not match it.
    in_namespace: list[Json] = [{"podSelector": {}}] if environment.store_is_near else []
    by_range = [] if environment.store_is_near else [_block(c) for c in environment.store_cidrs]
    return [{"to": [*in_namespace, *by_range], "ports": [_tcp(environment.store_port)]}]


def _own(egress: EgressSpec) -> Json:
    excluded = not_public_within(egress.cidr)
    block = {"cidr": egress.cidr, **({"except": excluded} if excluded else {})}
    rule: Json = {"to": [{"ipBlock": block}]}
    if egress.ports:
        rule["ports"] = [_tcp(port) for port in egress.ports]
    return rule


def _block(cidr: str) -> Json:
    excluded = _EVERYWHERE.get(cidr)
    return {"ipBlock": {"cidr": cidr, **({"except": excluded} if excluded else {})}}


def _tcp(port: int) -> Json:
    return {"port": port, "protocol": "TCP"}
