"""Verifies the link certificates of hubs that connect from other machines."""

import time
from collections.abc import Callable, Mapping

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from flowmesh_core.errors import ProtocolError
from flowmesh_core.protocol.link_certificates import LinkClaims, read_certificate


class LinkVerifier:
    """Verifies certificates for one group of routers."""

    def __init__(self, group: str = "", unix_time: Callable[[], float] = time.time) -> None:
        """Accepts nothing before :meth:`use`."""
        self._group = group
        self._unix_time = unix_time
        self._keys: dict[str, Ed25519PublicKey] = {}

    def use(self, keys: Mapping[str, str]) -> None:
        """Sets the public keys, in hexadecimal by id."""
        self._keys = {
            key_id: Ed25519PublicKey.from_public_bytes(bytes.fromhex(key))
            for key_id, key in keys.items()
        }

    def verify(self, certificate: str, worker: str) -> LinkClaims:
        """Returns what a certificate says.

        Args:
            certificate: as the hub shows it.
            worker: the worker that the hub says it is of.

        Raises:
            ProtocolError: it is not valid for this worker and these routers now.
        """
        if not certificate:
            raise ProtocolError("the hub has no link certificate")
        found = read_certificate(certificate)
        key = self._keys.get(found.key_id)
        if key is None:
            raise ProtocolError(f"the link certificate has an unknown key {found.key_id!r}")
        try:
            key.verify(found.signature, found.signed)
        except InvalidSignature:
            raise ProtocolError("the signature of the link certificate is not valid") from None
        claims = found.claims
        if claims.worker != worker:
            raise ProtocolError(f"the link certificate is of worker {claims.worker}, not {worker}")
        if claims.group != self._group:
            raise ProtocolError(f"the link certificate is for the routers {claims.group!r}")
        if self.remaining_s(claims) <= 0:
            raise ProtocolError("the link certificate has expired")
        return claims

    def remaining_s(self, claims: LinkClaims) -> float:
        """Returns how long a certificate is still valid."""
        return claims.expires_s - self._unix_time()
