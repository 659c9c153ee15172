"""Identities of the API server: fixed tokens, and kubeconfig files with them."""

import secrets
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import yaml

IDENTITIES: Mapping[str, tuple[str, str]] = {
    "admin": ("admin", "system:masters"),
    "controllers": ("system:kube-controller-manager", ""),
    "scheduler": ("system:kube-scheduler", ""),
    "proxy": ("system:kube-proxy", ""),
    "dns": ("system:dns", ""),
    "network-policies": ("system:network-policies", ""),
}
"""User and group by the name of a kubeconfig file; nodes are added."""


def write_access(
    folder: Path,
    server: str,
    authority: Path,
    nodes: list[str],
    users: Mapping[str, tuple[str, str]] = MappingProxyType({}),
) -> Path:
    """Writes the file of tokens and one kubeconfig per identity; returns the file of tokens.

    Args:
        folder: where the files go.
        server: address of the API server.
        authority: the certificate to trust.
        nodes: names of kubelets.
        users: more identities: user and group by the name of a kubeconfig file.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    identities = {**IDENTITIES, **users}
    identities.update({node: (f"system:node:{node}", "system:nodes") for node in nodes})
    lines = []
    for name, (user, group) in identities.items():
        token = secrets.token_hex(16)
        lines.append(f'{token},{user},{name},"{group}"' if group else f"{token},{user},{name}")
        _kubeconfig(folder / f"{name}.kubeconfig", server, authority, token)
    tokens = folder / "tokens.csv"
    tokens.write_text("\n".join(lines) + "\n")
    tokens.chmod(0o600)
    return tokens


def _kubeconfig(file: Path, server: str, authority: Path, token: str) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "e2e",
                "cluster": {"server": server, "certificate-authority": str(authority)},
            }
        ],
        "users": [{"name": "e2e", "user": {"token": token}}],
        "contexts": [{"name": "e2e", "context": {"cluster": "e2e", "user": "e2e"}}],
        "current-context": "e2e",
    }
    file.write_text(yaml.safe_dump(config))
    file.chmod(0o600)
