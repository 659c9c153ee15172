"""Cluster DNS: CoreDNS beside the kubelet, behind the Service that pods use."""

import json
from pathlib import Path

from e2e.cluster.namespaces import NODE_ADDRESS
from e2e.cluster.node import DNS_DOMAIN, DNS_SERVICE

USER = "system:dns"
HEALTH = f"http://{NODE_ADDRESS}:8181/ready"
_NAME = "kube-dns"


def write_dns(folder: Path, kubeconfig: Path) -> Path:
    """Writes CoreDNS's configuration; returns the file.

    Names outside of the cluster do not resolve: the tests' pods have no other DNS server.
    """
    file = folder / "Corefile"
    file.write_text(
        f"""{DNS_DOMAIN}:53 in-addr.arpa:53 ip6.arpa:53 {{
    bind {NODE_ADDRESS}
    errors
    ready {NODE_ADDRESS}:8181
    kubernetes {DNS_DOMAIN} in-addr.arpa ip6.arpa {{
        kubeconfig {kubeconfig}
        pods insecure
        ttl 5
    }}
}}
.:53 {{
    bind {NODE_ADDRESS}
    template ANY ANY {{
        rcode NXDOMAIN
    }}
}}
"""
    )
    return file


def coredns(config: Path) -> list[str]:
    """Returns CoreDNS's command line."""
    return ["coredns", "-conf", str(config)]


def manifests() -> str:
    """Returns CoreDNS' objects: rights to read, and a Service that leads to the process."""
    rules = [
        {
            "apiGroups": [""],
            "resources": ["services", "namespaces", "pods", "endpoints"],
            "verbs": ["list", "watch"],
        },
        {
            "apiGroups": ["discovery.k8s.io"],
            "resources": ["endpointslices"],
            "verbs": ["list", "watch"],
        },
    ]
    ports = [{"name": "dns", "port": 53, "protocol": "UDP"}]
    ports.append({"name": "dns-tcp", "port": 53, "protocol": "TCP"})
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": USER}
    items = [
        _object("rbac.authorization.k8s.io/v1", "ClusterRole", USER, rules=rules),
        _object(
            "rbac.authorization.k8s.io/v1",
            "ClusterRoleBinding",
            USER,
            roleRef=role,
            subjects=[
                {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER},
            ],
        ),
        _object("v1", "Service", _NAME, spec={"clusterIP": DNS_SERVICE, "ports": ports}),
        _object(
            "discovery.k8s.io/v1",
            "EndpointSlice",
            _NAME,
            addressType="IPv4",
            endpoints=[{"addresses": [NODE_ADDRESS]}],
            ports=ports,
        ),
    ]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def _object(version: str, kind: str, name: str, **fields: object) -> dict[str, object]:
    labels = {"k8s-app": _NAME}
    if kind == "EndpointSlice":
        labels["kubernetes.io/service-name"] = _NAME
    metadata: dict[str, object] = {"name": name, "labels": labels}
    if kind in ("Service", "EndpointSlice"):
        metadata["namespace"] = "kube-system"
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}
