"""Certificates that a client trusts, from a file that may be replaced while the process runs."""

import ssl
from pathlib import Path

from flowmesh_core.errors import StoreAccessError


class TrustedAuthority:
    """The TLS context of a client; it is made anew when the file has changed."""

    def __init__(self, file: Path | None) -> None:
        """Reads the file when a context is first asked for.

        Args:
            file: PEM certificates to trust, and no others; None trusts the system's.
        """
        self._file = file
        self._read = b""
        self._tls: ssl.SSLContext | bool = True

    def context(self) -> ssl.SSLContext | bool:
        """Returns the context as ``aiohttp`` takes it: True for the system's certificates.

        Raises:
            StoreAccessError: the file cannot be read, or has no certificate.
        """
        if self._file is None:
            return True
        try:
            found = self._file.read_bytes()
            if found != self._read:
                self._tls = ssl.create_default_context(cadata=found.decode())
                self._read = found
        except (OSError, ValueError, ssl.SSLError) as error:
            raise StoreAccessError(
                f"the file of trusted certificates cannot be used: {error}",
                where=str(self._file),
                remedy="give the authority's certificates in PEM, as in ca.crt of its Secret",
            ) from error
        return self._tls
