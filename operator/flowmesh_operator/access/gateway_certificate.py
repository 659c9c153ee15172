"""Makes an installation's own TLS certificates; called by ``flowmesh_operator.bootstrap``.

They have the extensions that strict clients require (Python 3.13 verifies with ``X509_STRICT``).
"""

import datetime
import ipaddress
from collections.abc import Sequence

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

_LOOPBACK = "127.0.0.1"
_BACKDATE = datetime.timedelta(minutes=5)
"""Certificates are valid from a little earlier, because the clocks of machines differ."""


def gateway_certificate(
    hosts: Sequence[str], days: int, now: datetime.datetime
) -> dict[str, bytes]:
    """Makes a certificate authority and a server certificate that it signs.

    Args:
        hosts: DNS names that the certificate is valid for, besides 127.0.0.1.
        days: validity of both, in days.
        now: the current time.

    Returns:
        ``ca.crt``, ``tls.crt`` and ``tls.key`` in PEM; the authority's private key is not stored.
    """
    authority_key, key = _new_key(), _new_key()
    issuer = _name("flowmesh gateway")
    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False,
        key_encipherment=False, data_encipherment=False, key_agreement=False,
        encipher_only=False, decipher_only=False,
    )  # fmt: skip
    authority = (
        _builder(issuer, issuer, authority_key, authority_key, days, now)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(authority_key, hashes.SHA256())
    )
    names = [*map(x509.DNSName, hosts), x509.IPAddress(ipaddress.ip_address(_LOOPBACK))]
    server = (
        _builder(_name("flowmesh-gateway"), issuer, key, authority_key, days, now)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(authority_key, hashes.SHA256())
    )
    return {"ca.crt": _pem(authority), "tls.crt": _pem(server), "tls.key": _key_pem(key)}


def self_signed(name: str, days: int, now: datetime.datetime) -> dict[str, bytes]:
    """Makes a self-signed certificate and its key: ``tls.crt`` and ``tls.key`` in PEM.

    For a client that must present a certificate although no server checks it.

    Args:
        name: the subject's common name.
        days: validity, in days.
        now: the current time.
    """
    key, subject = _new_key(), _name(name)
    certificate = _builder(subject, subject, key, key, days, now).sign(key, hashes.SHA256())
    return {"tls.crt": _pem(certificate), "tls.key": _key_pem(key)}


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    authority_key: ec.EllipticCurvePrivateKey,
    days: int,
    now: datetime.datetime,
) -> x509.CertificateBuilder:
    public, signer = key.public_key(), authority_key.public_key()
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATE)
        .not_valid_after(now + datetime.timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer), critical=False
        )
    )  # fmt: skip


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
