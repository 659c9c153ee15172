"""Command lines of etcd, API server, controllers and scheduler."""

import json
from pathlib import Path

from e2e.cluster.certificates import PROXY_CLIENT, Certificates
from e2e.cluster.namespaces import NODE_ADDRESS

SERVICES = "10.96.0.0/16"
PODS = "10.244.0.0/16"
API_PORT = 6443
SERVER = f"https://{NODE_ADDRESS}:{API_PORT}"
_ETCD = "http://127.0.0.1:2379"
_PEERS = "http://127.0.0.1:2380"
FEATURES = "HPAScaleToZero=true"
HPA_SYNC = "5s"
AUDIT_LOG, _POLICY = "audit.log", "policy.json"


def etcd(folder: Path, *, clients: str = _ETCD, peers: str = _PEERS) -> list[str]:
    """Returns etcd's command line; its data need not outlive the cluster, so it does not sync.

    Args:
        folder: the folder of its data.
        clients: the address for the API server.
        peers: the address for other members, of which there are none.
    """
    return [
        "etcd",
        f"--data-dir={folder / 'etcd'}",
        f"--listen-client-urls={clients}",
        f"--advertise-client-urls={clients}",
        f"--listen-peer-urls={peers}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def api_server(
    certificates: Certificates,
    tokens: Path,
    *,
    address: str = NODE_ADDRESS,
    port: int = API_PORT,
    storage: str = _ETCD,
    audit: Path | None = None,
) -> list[str]:
    """Returns the API server's command line.

    Args:
        certificates: its own and the authority's.
        tokens: the file of tokens.
        address: where it listens.
        port: where it listens.
        storage: etcd's address.
        audit: the folder that :func:`write_audit_policy` prepared, for a log of the requests of
            service accounts; no log if None.
    """
    noted: list[str] = []
    if audit is not None:
        noted += [f"--audit-policy-file={audit / _POLICY}", f"--audit-log-path={audit / AUDIT_LOG}"]
    return [
        "kube-apiserver",
        f"--etcd-servers={storage}",
        f"--bind-address={address}",
        f"--advertise-address={address}",
        f"--secure-port={port}",
        f"--service-cluster-ip-range={SERVICES}",
        f"--tls-cert-file={certificates.server[0]}",
        f"--tls-private-key-file={certificates.server[1]}",
        f"--client-ca-file={certificates.authority}",
        f"--kubelet-client-certificate={certificates.kubelet_client[0]}",
        f"--kubelet-client-key={certificates.kubelet_client[1]}",
        f"--service-account-key-file={certificates.accounts}",
        f"--service-account-signing-key-file={certificates.accounts}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--token-auth-file={tokens}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--requestheader-client-ca-file={certificates.authority}",
        f"--requestheader-allowed-names={PROXY_CLIENT}",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-username-headers=X-Remote-User",
        f"--proxy-client-cert-file={certificates.proxy_client[0]}",
        f"--proxy-client-key-file={certificates.proxy_client[1]}",
        "--enable-aggregator-routing=true",
        "--allow-privileged=true",
        "--kubelet-preferred-address-types=InternalIP",
        f"--feature-gates={FEATURES}",
        *noted,
    ]


def write_audit_policy(folder: Path) -> Path:
    """Writes a policy for logging the requests of service accounts outside of kube-system.

    Returns:
        The folder, which will contain the log too.
    """
    folder.mkdir(parents=True, exist_ok=True)
    own = {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]}
    users = {"level": "Metadata", "userGroups": ["system:serviceaccounts"]}
    policy = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [own, users, {"level": "None"}],
    }
    (folder / _POLICY).write_text(json.dumps(policy))
    return folder


def controllers(certificates: Certificates, kubeconfig: Path) -> list[str]:
    """Returns the controller manager's command line."""
    return [
        "kube-controller-manager",
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--root-ca-file={certificates.authority}",
        f"--cluster-signing-cert-file={certificates.authority}",
        f"--cluster-signing-key-file={certificates.authority_key}",
        f"--service-account-private-key-file={certificates.accounts}",
        "--use-service-account-credentials=true",
        "--allocate-node-cidrs=false",
        "--leader-elect=false",
        f"--horizontal-pod-autoscaler-sync-period={HPA_SYNC}",
        "--node-monitor-grace-period=20s",
        f"--feature-gates={FEATURES}",
    ]


def scheduler(kubeconfig: Path) -> list[str]:
    """Returns the scheduler's command line."""
    return [
        "kube-scheduler",
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        "--leader-elect=false",
    ]
