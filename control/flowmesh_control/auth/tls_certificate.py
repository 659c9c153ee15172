"""The control plane's TLS certificate, reloaded when its files change.

cert-manager, for example, renews a certificate by replacing a Secret's files under the running
process. New connections use the new certificate; open ones keep theirs.
"""

import asyncio
import logging
import ssl
from pathlib import Path
from typing import Self

from flowmesh_core.errors import FlowMeshError

LOOK_EVERY_S = 10.0
log = logging.getLogger("flowmesh.control.certificate")


class TlsCertificate:
    """A certificate chain with its key, and the TLS context that presents them."""

    def __init__(self, chain: Path, key: Path, *, look_every_s: float = LOOK_EVERY_S) -> None:
        """Reads the files.

        Args:
            chain: PEM, the leaf first.
            key: PEM, without a passphrase.
            look_every_s: how often :meth:`follow` checks the files for changes.

        Raises:
            FlowMeshError: a file cannot be read, or the key is not the certificate's.
        """
        self._chain = chain
        self._key = key
        self._look_every_s = look_every_s
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            self._content = self._read()
            self.context.load_cert_chain(chain, key)
        except (OSError, ssl.SSLError) as e:
            raise FlowMeshError(
                f"the certificate cannot be used: {e}",
                where=f"{chain}, {key}",
                remedy="give a PEM certificate chain and its PEM key, without a passphrase",
            ) from e

    @classmethod
    def of(cls, chain: str, key: str) -> Self | None:
        """Returns the certificate of two settings; None where neither is given.

        Raises:
            FlowMeshError: one is given without the other, or they cannot be used.
        """
        if not chain and not key:
            return None
        if not chain or not key:
            raise FlowMeshError(
                f"the {'certificate' if key else 'key'} is missing",
                where="--tls-cert, --tls-key",
                remedy="give both, or neither for a control plane without TLS",
            )
        return cls(Path(chain), Path(key))

    async def follow(self) -> None:
        """Reloads the files when they have changed and are complete; runs until cancelled."""
        while True:
            await asyncio.sleep(self._look_every_s)
            try:
                found = self._read()
                if found == self._content:
                    continue
                # First into a scratch context: loading a half-replaced pair into the context in use
                # would break it.
                ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
                    self._chain, self._key
                )
                self.context.load_cert_chain(self._chain, self._key)
            except (OSError, ssl.SSLError) as e:
                log.warning("%s: the old certificate stays in use: %s", self._chain, e)
                continue
            self._content = found
            log.info("%s: loaded a new certificate", self._chain)

    def _read(self) -> tuple[bytes, bytes]:
        return self._chain.read_bytes(), self._key.read_bytes()
