"""The router's TLS certificate, read again when its files change; hubs have to show one too."""

import asyncio
import logging
import ssl
from pathlib import Path

from flowmesh_core.errors import FlowMeshError

_LOOK_EVERY_S = 10.0
_log = logging.getLogger(__name__)


class TlsFiles:
    """A certificate with its key, and the TLS contexts that present them.

    Attributes:
        context: for clients.
        hub_context: for hubs, which need a certificate of an authority that it has.
    """

    def __init__(self, certificate: Path, key: Path) -> None:
        """Reads the files.

        Raises:
            FlowMeshError: they cannot be used.
        """
        self._certificate = certificate
        self._key = key
        self.context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.hub_context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.hub_context.verify_mode = ssl.CERT_REQUIRED
        try:
            self._content = self._load()
        except (OSError, ssl.SSLError) as e:
            raise FlowMeshError(
                f"the certificate cannot be used: {e}",
                where=f"{certificate}, {key}",
                remedy="give a PEM certificate chain and its PEM key, without a passphrase",
            ) from e

    async def follow(self) -> None:
        """Reads the files again when they have changed; runs until it is cancelled."""
        while True:
            await asyncio.sleep(_LOOK_EVERY_S)
            try:
                self._content = await asyncio.to_thread(self._load, self._content)
            except (OSError, ssl.SSLError) as e:
                _log.warning("%s: the old certificate stays in use: %s", self._certificate, e)

    def _load(self, known: tuple[bytes, bytes] | None = None) -> tuple[bytes, bytes]:
        """Loads the files where their content is not the known one; returns it."""
        content = self._certificate.read_bytes(), self._key.read_bytes()
        if content != known:
            # First into another context: a half-replaced pair would break the one in use.
            scratch = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            for context in (scratch, self.context, self.hub_context):
                context.load_cert_chain(self._certificate, self._key)
        return content
