"""Ways to connect to a control plane, with the user's credentials."""

import http.client
import ssl
from collections.abc import Callable
from typing import Protocol
from urllib.parse import urlsplit

from flowmesh_sdk.errors import FlowMeshError

PORT = 8470
"""Of a cluster's gateway."""
_HTTPS = 443
_LOOPBACK = ("127.0.0.1", "::1", "localhost")


class Transport(Protocol):
    """A way to connect to a control plane, with the user's credentials."""

    def connect(self, timeout_s: float | None) -> http.client.HTTPConnection:
        """Returns a new connection.

        Raises:
            OSError: it cannot be opened.
        """
        ...

    def token(self, *, renewed: bool) -> str:
        """Returns the bearer token; ``renewed`` where the last one was refused."""
        ...


class LoopbackTransport:
    """Connects to a local fabric's address with its constant token."""

    def __init__(self, url: str, token: str) -> None:
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._token = token

    def connect(self, timeout_s: float | None) -> http.client.HTTPConnection:
        """See ``Transport.connect``."""
        return http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)

    def token(self, *, renewed: bool) -> str:
        """See ``Transport.token``."""
        del renewed
        return self._token


class ServerTransport:
    """Connects directly to a server's address."""

    def __init__(self, url: str, token: Callable[[], str], *, ca: str = "") -> None:
        """Checks the address.

        Args:
            url: such as ``https://flowmesh.example.com:8470``.
            token: returns the bearer token; called again where one was refused.
            ca: a PEM file of the authorities to trust; the system's where empty.

        Raises:
            FlowMeshError: the address is none, or would send the token unencrypted; or the file has
                no certificates.
        """
        self._parts = urlsplit(url)
        host = self._parts.hostname or ""
        if self._parts.scheme not in ("http", "https") or not host:
            raise FlowMeshError(
                f"{url!r} is not a server's address",
                where="server",
                remedy="write it as in https://flowmesh.example.com:8470",
            )
        if self._parts.scheme == "http" and host not in _LOOPBACK:
            raise FlowMeshError(
                "http:// would send your token over the network unencrypted",
                where=f"server {url}",
                remedy="use https://",
            )
        self._host, self._renewed_token = host, token
        self._context = _trusting(ca) if self._parts.scheme == "https" else None

    def connect(self, timeout_s: float | None) -> http.client.HTTPConnection:
        """See ``Transport.connect``."""
        port = self._parts.port
        if self._context is None:
            return http.client.HTTPConnection(self._host, port or PORT, timeout=timeout_s)
        return http.client.HTTPSConnection(
            self._host, port or _HTTPS, timeout=timeout_s, context=self._context
        )

    def token(self, *, renewed: bool) -> str:
        """See ``Transport.token``."""
        del renewed
        return self._renewed_token()


def _trusting(ca: str) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca or None)
    except (OSError, ssl.SSLError) as e:
        raise FlowMeshError(
            f"no certificates can be read: {e}",
            where=f"ca {ca}",
            remedy="give a PEM file with the CA certificate of the server",
        ) from e
