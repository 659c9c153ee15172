"""Signs link certificates, with which hubs prove to routers on other machines what they may serve.

The Ed25519 keys follow from the master keys: a certificate stays valid when another replica leads,
and routers get the public keys only.
"""

from collections.abc import Callable, Iterable

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from flowmesh_core.protocol.link_certificates import (
    VALID_S,
    LinkClaims,
    certificate_text,
    signed_bytes,
)
from flowmesh_core.sharing.key_ring import DerivedKeys


class LinkSigner:
    """Signs the certificates of one installation.

    Attributes:
        public_keys: in hexadecimal, by id; also of keys that sign nothing new.
    """

    def __init__(self, keys: DerivedKeys, clock: Callable[[], float]) -> None:
        """Derives the signing keys.

        Args:
            keys: of the purpose ``LINK_KEYS``.
            clock: Unix time in seconds.
        """
        self._key_id = keys.newest_id
        self._key = Ed25519PrivateKey.from_private_bytes(keys.newest)
        self._clock = clock
        self.public_keys = {key_id: _public(key) for key_id, key in keys.by_id.items()}

    def sign(
        self, worker: str, incarnation: str, pool: str, group: str, namespaces: Iterable[str]
    ) -> str:
        """Returns a certificate that is valid for an hour."""
        expires_s = self._clock() + VALID_S
        names = tuple(sorted(namespaces))
        signed = signed_bytes(LinkClaims(worker, incarnation, pool, group, names, expires_s))
        return certificate_text(self._key_id, signed, self._key.sign(signed))


def _public(secret: bytes) -> str:
    public = Ed25519PrivateKey.from_private_bytes(secret).public_key()
    raw = public.public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)
    return raw.hex()
