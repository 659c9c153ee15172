"""The cluster's own certificate authority, and the certificates that it signs."""

from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

SERVICE_ADDRESS = "10.96.0.1"
PROXY_CLIENT = "front-proxy-client"


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files below one directory.

    Attributes:
        authority: the certificate that all components trust, ``authority_key`` its key (the
            controller manager signs with it).
        server: certificate and key of the API server.
        kubelet_client: the API server's client certificate for kubelets, for logs and exec.
        proxy_client: the API server's client certificate for aggregated APIs.
        accounts: the key that signs tokens of service accounts.
    """

    authority: Path
    authority_key: Path
    server: tuple[Path, Path]
    kubelet_client: tuple[Path, Path]
    proxy_client: tuple[Path, Path]
    accounts: Path


def make_certificates(folder: Path, address: str) -> Certificates:
    """Creates all certificates and keys.

    Args:
        folder: where the files go.
        address: the API server's address.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    ca = trustme.CA()
    authority, authority_key = folder / "ca.crt", folder / "ca.key"
    ca.cert_pem.write_to_path(str(authority))
    ca.private_key_pem.write_to_path(str(authority_key))
    names = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost")
    return Certificates(
        authority,
        authority_key,
        server=_write(
            ca.issue_cert(*names, address, SERVICE_ADDRESS, "127.0.0.1"), folder, "server"
        ),
        kubelet_client=_write(
            ca.issue_cert(
                "kube-apiserver", common_name="kube-apiserver", organization_name="system:masters"
            ),
            folder,
            "kubelet-client",
        ),
        proxy_client=_write(
            ca.issue_cert(PROXY_CLIENT, common_name=PROXY_CLIENT), folder, "proxy-client"
        ),
        accounts=_write_accounts_key(folder),
    )


def _write(leaf: trustme.LeafCert, folder: Path, name: str) -> tuple[Path, Path]:
    """Writes a certificate and its key; returns their files."""
    certificate, key = folder / f"{name}.crt", folder / f"{name}.key"
    certificate.write_bytes(b"".join(c.bytes() for c in leaf.cert_chain_pems))
    leaf.private_key_pem.write_to_path(str(key))
    return certificate, key


def _write_accounts_key(folder: Path) -> Path:
    accounts = folder / "accounts.key"
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    accounts.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
    return accounts
