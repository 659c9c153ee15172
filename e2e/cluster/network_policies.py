"""Enforcement of NetworkPolicies: kube-router's controller, and nothing else of kube-router.

It writes the policies into the node's packet rules (iptables and ipset).
"""

import json
import urllib.request
from pathlib import Path

from e2e.cluster.control_plane import SERVICES
from e2e.cluster.namespaces import NODE_ADDRESS
from e2e.cluster.node import NAME

PROGRAM = "kube-router"
USER = "system:network-policies"
CHAINS = {chain: f"KUBE-ROUTER-{chain}" for chain in ("INPUT", "FORWARD", "OUTPUT")}
"""The kernel's chains, and the one of kube-router that each calls first."""
_HEALTH_PORT = 20244


def kube_router(kubeconfig: Path) -> list[str]:
    """Returns kube-router's command line."""
    return [
        PROGRAM,
        f"--kubeconfig={kubeconfig}",
        f"--hostname-override={NAME}",
        "--run-firewall=true",
        "--run-router=false",
        "--run-service-proxy=false",
        "--run-loadbalancer=false",
        f"--service-cluster-ip-range={SERVICES}",
        f"--health-port={_HEALTH_PORT}",
        "--v=1",
    ]


def enforces() -> bool:
    """Whether kube-router has read all policies and written its rules."""
    try:
        where = f"http://{NODE_ADDRESS}:{_HEALTH_PORT}/healthz"
        with urllib.request.urlopen(where, timeout=1) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def manifests() -> str:
    """Returns the objects that give kube-router's user the right to read."""
    rules = [
        _readable("", "namespaces", "pods", "services", "nodes", "endpoints"),
        _readable("networking.k8s.io", "networkpolicies"),
        _readable("discovery.k8s.io", "endpointslices"),
    ]
    group = "rbac.authorization.k8s.io"
    common = {"apiVersion": f"{group}/v1", "metadata": {"name": USER}}
    items = [
        {**common, "kind": "ClusterRole", "rules": rules},
        {
            **common,
            "kind": "ClusterRoleBinding",
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": USER},
            "subjects": [{"apiGroup": group, "kind": "User", "name": USER}],
        },
    ]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": items})


def _readable(group: str, *resources: str) -> dict[str, list[str]]:
    return {"apiGroups": [group], "resources": [*resources], "verbs": ["get", "list", "watch"]}
