"""Evaluates NetworkPolicy objects as a CNI does: which connections between which peers they allow.

Stands in for a cluster that enforces them: the objects are the ones that the chart renders and the
operator creates. Rules: https://kubernetes.io/docs/concepts/services-networking/network-policies/.
"""

import ipaddress
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Json = Mapping[str, Any]


@dataclass(frozen=True)
class Peer:
    """A pod, or an address outside of the cluster (without ``namespace``)."""

    name: str
    address: str
    namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    namespace_labels: Mapping[str, str] = field(default_factory=dict, hash=False)


def allowed(
    policies: Iterable[Json], source: Peer, target: Peer, port: int, protocol: str = "TCP"
) -> bool:
    """Whether a connection is allowed at both ends."""
    known = list(policies)
    return _passes(known, "Egress", source, target, port, protocol) and _passes(
        known, "Ingress", target, source, port, protocol
    )


def _passes(
    policies: Sequence[Json], kind: str, own: Peer, other: Peer, port: int, protocol: str
) -> bool:
    """Whether the policies that select ``own`` allow the other end; all is allowed without one."""
    found = [p for p in policies if _selects(p, own) and kind in p["spec"]["policyTypes"]]
    if not found:
        return True
    key, direction = ("egress", "to") if kind == "Egress" else ("ingress", "from")
    return any(
        _port(rule, port, protocol)
        and _peer(policy["metadata"]["namespace"], rule.get(direction) or [], other)
        for policy in found
        for rule in policy["spec"].get(key) or []
    )


def _selects(policy: Json, own: Peer) -> bool:
    if own.namespace != policy["metadata"]["namespace"]:
        return False
    return _matches(policy["spec"]["podSelector"], own.labels)


def _matches(selector: Json, labels: Mapping[str, str]) -> bool:
    assert set(selector) <= {"matchLabels"}, "the evaluator knows matchLabels only"
    return all(labels.get(k) == v for k, v in selector.get("matchLabels", {}).items())


def _port(rule: Json, port: int, protocol: str) -> bool:
    ports = rule.get("ports") or []
    return not ports or any(
        p["port"] == port and p.get("protocol", "TCP") == protocol for p in ports
    )


def _peer(namespace: str, peers: Sequence[Json], other: Peer) -> bool:
    return not peers or any(_is(namespace, peer, other) for peer in peers)


def _is(namespace: str, peer: Json, other: Peer) -> bool:
    if "ipBlock" in peer:
        block, address = peer["ipBlock"], ipaddress.ip_address(other.address)
        inside = address in ipaddress.ip_network(block["cidr"])
        return inside and not any(
            address in ipaddress.ip_network(cidr) for cidr in block.get("except", [])
        )
    if not other.namespace:
        return False
    if "namespaceSelector" in peer:
        if not _matches(peer["namespaceSelector"], other.namespace_labels):
            return False
    elif other.namespace != namespace:
        return False
    return _matches(peer.get("podSelector", {}), other.labels)
