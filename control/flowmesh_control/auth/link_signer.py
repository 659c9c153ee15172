"""Issues link certificates, with which hubs prove on other machines what they may serve.

The keys of the authorities follow from the master keys: a certificate stays valid when another
replica leads, and routers and hubs get the authorities' certificates only.
"""

import datetime
from collections.abc import Callable, Iterable

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from flowmesh_core.protocol.link_certificates import (
    VALID_S,
    LinkCertificate,
    LinkClaims,
    claims_uri,
)
from flowmesh_core.sharing.key_ring import DerivedKeys

_BACKDATE_S = 300.0
"""Certificates are valid from a little earlier, because the clocks of machines differ."""
_BEGIN = datetime.datetime(2025, 1, 1, tzinfo=datetime.UTC)
_NO_END = datetime.datetime(9999, 12, 31, 23, 59, 59, tzinfo=datetime.UTC)
"""RFC 5280's date of certificates that do not expire: authorities end with their master keys."""
_PURPOSES = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]


class LinkSigner:
    """Issues the certificates of one installation.

    Attributes:
        authorities: certificates in PEM, by key id; also of keys that sign nothing new.
    """

    def __init__(self, keys: DerivedKeys, clock: Callable[[], float]) -> None:
        """Derives the signing keys.

        Args:
            keys: of the purpose ``LINK_KEYS``.
            clock: Unix time in seconds.
        """
        self._key = Ed25519PrivateKey.from_private_bytes(keys.newest)
        self._issuer = _authority_name(keys.newest_id)
        self._clock = clock
        self.authorities = {
            key_id: _authority(_authority_name(key_id), Ed25519PrivateKey.from_private_bytes(key))
            for key_id, key in keys.by_id.items()
        }

    def issue(
        self, worker: str, incarnation: str, pool: str, group: str, namespaces: Iterable[str]
    ) -> LinkCertificate:
        """Returns a certificate that is valid for an hour, with a new private key."""
        now_s, key = self._clock(), Ed25519PrivateKey.generate()
        claims = LinkClaims(worker, incarnation, pool, group, tuple(sorted(namespaces)))
        name = x509.UniformResourceIdentifier(claims_uri(claims))
        certificate = (
            _builder(_name("flowmesh link"), self._issuer, key.public_key(), self._key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(_time(now_s - _BACKDATE_S))
            .not_valid_after(_time(now_s + VALID_S))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([name]), critical=False)
            .add_extension(x509.ExtendedKeyUsage(_PURPOSES), critical=False)
            .sign(self._key, None)
        )
        private = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        authorities = "".join(self.authorities.values())
        return LinkCertificate(_pem(certificate), private.decode(), authorities)


def _authority(name: x509.Name, key: Ed25519PrivateKey) -> str:
    """Returns the certificate of a key: always the same, whichever replica makes it."""
    usage = x509.KeyUsage(
        digital_signature=False, key_cert_sign=True, crl_sign=True, content_commitment=False,
        key_encipherment=False, data_encipherment=False, key_agreement=False,
        encipher_only=False, decipher_only=False,
    )  # fmt: skip
    return _pem(
        _builder(name, name, key.public_key(), key.public_key())
        .serial_number(1)
        .not_valid_before(_BEGIN)
        .not_valid_after(_NO_END)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, None)
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, public: Ed25519PublicKey, signer: Ed25519PublicKey
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer), critical=False)
    )


def _authority_name(key_id: str) -> x509.Name:
    return _name(f"flowmesh links {key_id}")


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _time(unix_s: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(unix_s, datetime.UTC)


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
