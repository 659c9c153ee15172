"""The NetworkPolicy of a pool: nothing in, and out only where a worker has to go.

Nothing dials a worker. Links to clouds' metadata services are left out of every wide range.
"""

from typing import Any

from flowmesh_core.spec.pool import EgressSpec, FlowMeshWorkerPool
from flowmesh_operator.kube.labels import object_metadata, selector_labels
from flowmesh_operator.pod_environment import PodEnvironment

_DNS_PORT = 53
_EVERYWHERE = {"0.0.0.0/0": ["169.254.0.0/16"], "::/0": ["fe80::/10", "fd00:ec2::254/128"]}
"""Ranges that hold link-local addresses, where metadata services hand out credentials."""

Json = dict[str, Any]


def network_policy(pool: FlowMeshWorkerPool, around: PodEnvironment) -> Json:
    """Default deny, and the ways out: DNS, gateway, bucket, what the pool names."""
    rules = [_dns(), _gateway(around), *_store(around), *map(_own, pool.spec.egress)]
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": object_metadata(pool),
        "spec": {
            "podSelector": {"matchLabels": selector_labels(pool.metadata.name)},
            "policyTypes": ["Ingress", "Egress"],
            "egress": rules,
        },
    }


def _dns() -> Json:
    ports = [{"port": _DNS_PORT, "protocol": protocol} for protocol in ("UDP", "TCP")]
    return {"ports": ports}


def _gateway(around: PodEnvironment) -> Json:
    return {
        "to": [{"podSelector": {"matchLabels": around.operator_labels}}],
        "ports": [_tcp(around.gateway_port)],
    }


def _store(around: PodEnvironment) -> list[Json]:
    if around.store_path:
        return []  # a mounted volume
    # The address behind a Service is a pod's, in this namespace: no range names it.
    near: list[Json] = [{"podSelector": {}}] if around.store_is_near else []
    far = [] if around.store_is_near else [_block(cidr) for cidr in around.store_cidrs]
    return [{"to": [*near, *far], "ports": [_tcp(around.store_port)]}]


def _own(egress: EgressSpec) -> Json:
    rule: Json = {"to": [_block(egress.cidr)]}
    if egress.ports:
        rule["ports"] = [_tcp(port) for port in egress.ports]
    return rule


def _block(cidr: str) -> Json:
    without = _EVERYWHERE.get(cidr)
    return {"ipBlock": {"cidr": cidr, **({"except": without} if without else {})}}


def _tcp(port: int) -> Json:
    return {"port": port, "protocol": "TCP"}
