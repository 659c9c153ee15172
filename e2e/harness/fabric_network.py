"""The pods of a fabric and others, and the connections between them that its policies allow.

What is allowed is what docs/kubernetes.md says. All other connections of the matrix are closed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from e2e.cluster.control_plane import API_PORT
from e2e.cluster.namespaces import NODE_ADDRESS, PUBLIC_ADDRESS
from e2e.cluster.node import PROXY_HEALTH_PORT
from e2e.harness.fabric import NAMESPACE, Fabric
from e2e.harness.kube import Json
from e2e.harness.reach import DNS_PORT, Edge, Target
from tests.charts.network_evaluator import Peer, allowed

HERE = f"--namespace={NAMESPACE}"
PORTS: Mapping[str, tuple[str, int, str]] = {
    "gateway": ("operator", 8470, "flowmesh-gateway"),
    "health": ("operator", 8471, ""),
    "store": ("store", 7070, "flowmesh-store"),
    "blob service": ("blobs", 8472, "flowmesh-blobs"),
    "requests": ("router", 8480, "flowmesh-router"),
    "hubs": ("router", 8481, ""),
    "metrics": ("router", 8482, ""),
    "peer one": ("one", 8483, ""),
    "peer two": ("two", 8483, ""),
    "DNS": ("dns", DNS_PORT, ""),
    "other DNS": ("client", DNS_PORT, ""),
    "API server": ("node", API_PORT, ""),
    "kubelet": ("node", 10250, ""),
    "public address": ("internet", PROXY_HEALTH_PORT, ""),
}
"""By the name of a target: what listens, the port, and its Service."""
_NO_PODS = {"node": NODE_ADDRESS, "internet": PUBLIC_ADDRESS}
_OUTSIDE = {"API server", "kubelet", "public address", "DNS"}
_WORKER = {"gateway", "store", "blob service", "hubs", "DNS"}
ALLOWED: Mapping[str, set[str]] = {
    "tenant": {"gateway", "requests", "other DNS", *_OUTSIDE},
    "client": {"gateway", "requests", "metrics", *_OUTSIDE},
    "worker": {*_WORKER, "public address"},
    "one": {*_WORKER, "peer two"},
    "two": {*_WORKER, "peer one"},
    "operator": {"store", "API server", "DNS"},
    "blobs": {"store", "DNS"},
    "router": {"gateway", "DNS"},
    "store": set(),
}
"""Targets by source. ``worker`` has no peers, and ``egress`` to everywhere. Nothing restricts what
tenants' own pods call."""


@dataclass(frozen=True)
class FabricNetwork:
    """The matrix of sources and targets.

    Attributes:
        pods: the sources of :data:`ALLOWED`, and what listens at targets of :data:`PORTS`.
    """

    fabric: Fabric
    pods: Mapping[str, Json]

    @cached_property
    def targets(self) -> Mapping[str, list[Target]]:
        """The addresses of each target of :data:`PORTS`."""
        return {name: self._targets(name) for name in PORTS}

    @cached_property
    def edges(self) -> list[Edge]:
        """All connections to try; none leads to the pod, or the Service, that it comes from."""
        return [
            (source, target)
            for source in ALLOWED
            for name in PORTS
            if PORTS[name][0] != source
            for target in self.targets[name]
        ]

    def allowed(self, changes: Mapping[str, set[str]] | None = None) -> set[Edge]:
        """Returns the connections that may open.

        Args:
            changes: targets by source, in place of those of :data:`ALLOWED`.
        """
        wanted = {**ALLOWED, **(changes or {})}
        return {(source, target) for source, target in self.edges if target.name in wanted[source]}

    def evaluated(self) -> set[Edge]:
        """Returns the connections that the evaluator of the chart's tests finds to be allowed."""
        policies = self.fabric.kube.items("networkpolicies", HERE)
        peers = {name: self._peer(name) for name in self.pods}
        peers |= {name: Peer(name, address) for name, address in _NO_PODS.items()}
        return {
            (source, target)
            for source, target in self.edges
            if allowed(policies, peers[source], peers[PORTS[target.name][0]], PORTS[target.name][1])
        }

    def _targets(self, name: str) -> list[Target]:
        listens, port, service = PORTS[name]
        own = _NO_PODS.get(listens) or str(self.pods[listens]["status"]["podIP"])
        found = [Target(name, port, own)]
        if service:
            spec = self.fabric.kube.get("service", service, HERE)["spec"]
            found.append(Target(name, port, str(spec["clusterIP"])))
        return found

    def _peer(self, name: str) -> Peer:
        pod = self.pods[name]
        meta = pod["metadata"]
        around = self.fabric.kube.get("namespace", meta["namespace"])["metadata"]["labels"]
        return Peer(name, pod["status"]["podIP"], meta["namespace"], meta["labels"], around)
