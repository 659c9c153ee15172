"""The cluster's own certificate authority, and what it signs."""

from dataclasses import dataclass
from pathlib import Path

import trustme
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

SERVICE_ADDRESS = "10.96.0.1"


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files below one directory.

    Attributes:
        authority: the certificate that everybody trusts, ``authority_key`` its key (the controller
            manager signs with it).
        server: certificate and key of the API server.
        kubelet_client: what the API server shows kubelets, for logs and exec.
        accounts: the key that signs tokens of service accounts.
    """

    authority: Path
    authority_key: Path
    server: tuple[Path, Path]
    kubelet_client: tuple[Path, Path]
    accounts: Path


def make_certificates(folder: Path, address: str) -> Certificates:
    """Makes everything anew.

    Args:
        folder: where the files go.
        address: of the API server.
    """
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    ca = trustme.CA()
    authority, authority_key = folder / "ca.crt", folder / "ca.key"
    ca.cert_pem.write_to_path(str(authority))
    ca.private_key_pem.write_to_path(str(authority_key))
    names = ("kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost")
    leaf = ca.issue_cert(*names, address, SERVICE_ADDRESS, "127.0.0.1")
    server = (folder / "server.crt", folder / "server.key")
    server[0].write_bytes(b"".join(c.bytes() for c in leaf.cert_chain_pems))
    leaf.private_key_pem.write_to_path(str(server[1]))
    asking = ca.issue_cert(
        "kube-apiserver", common_name="kube-apiserver", organization_name="system:masters"
    )
    kubelet_client = (folder / "kubelet-client.crt", folder / "kubelet-client.key")
    kubelet_client[0].write_bytes(b"".join(c.bytes() for c in asking.cert_chain_pems))
    asking.private_key_pem.write_to_path(str(kubelet_client[1]))
    accounts = folder / "accounts.key"
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    accounts.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.TraditionalOpenSSL,
            serialization.NoEncryption(),
        )
    )
    return Certificates(authority, authority_key, server, kubelet_client, accounts)
