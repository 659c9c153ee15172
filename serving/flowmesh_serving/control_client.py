"""Reads the list of services from the control plane of a cluster, and reports to it.

While no control plane answers, the router goes on with what it read last.
"""

import asyncio
import ssl
from pathlib import Path

import aiohttp
import msgspec

from flowmesh_core.decoding import decode
from flowmesh_core.errors import FlowMeshError
from flowmesh_core.protocol.router_reports import RouterReport
from flowmesh_core.protocol.router_services import RouterServices

PATH = "/v1/router"
_WITHIN_S = 10.0
_OK = 200


class ControlClient:
    """Asks the control plane for the services, and sends it reports."""

    def __init__(self, url: str, token: Path, ca: Path | None) -> None:
        """Connects with each request.

        Args:
            url: of the gateway, such as ``https://flowmesh-gateway.flowmesh.svc:8470``.
            token: the file with the router's token; read each time, since Kubernetes renews it.
            ca: certificates (PEM) that the gateway's is verified with; None for the system's.
        """
        self._url = url.rstrip("/") + PATH
        self._token = token
        self._ca = ca
        self._last = b""

    async def read(self) -> RouterServices | None:
        """Returns the services; None where they have not changed.

        Raises:
            FlowMeshError: the control plane does not answer, or refuses.
        """
        try:
            body = await self._ask("GET")
            if body == self._last:
                return None
            listed = decode(_decoder, body)
        except (OSError, aiohttp.ClientError, TimeoutError, msgspec.DecodeError) as e:
            raise FlowMeshError(
                f"the services cannot be read from the control plane: {e or type(e).__name__}",
                where=self._url,
                remedy="the router tries again each second; what it read last holds",
            ) from e
        self._last = body
        return listed

    async def send(self, report: RouterReport) -> None:
        """Reports to the control plane.

        Raises:
            FlowMeshError: the control plane does not answer, or refuses.
        """
        try:
            await self._ask("POST", msgspec.json.encode(report))
        except (OSError, aiohttp.ClientError, TimeoutError) as e:
            raise FlowMeshError(
                f"the control plane does not take a report: {e or type(e).__name__}",
                where=self._url,
                remedy="the router reports again every few seconds; requests are served without it",
            ) from e

    async def _ask(self, method: str, content: bytes | None = None) -> bytes:
        token = await asyncio.to_thread(self._token.read_text, encoding="utf-8")
        secure: ssl.SSLContext | bool = True
        if self._ca is not None:
            secure = await asyncio.to_thread(ssl.create_default_context, cafile=self._ca)
        headers = {"Authorization": f"Bearer {token.strip()}", "Content-Type": "application/json"}
        within = aiohttp.ClientTimeout(total=_WITHIN_S)
        async with (
            aiohttp.ClientSession(timeout=within, headers=headers) as session,
            session.request(
                method, self._url, data=content, ssl=secure, allow_redirects=False
            ) as response,
        ):
            body = await response.read()
            if response.status != _OK:
                text = body[:500].decode(errors="replace")
                raise aiohttp.ClientError(f"status {response.status}: {text}")
            return body


_decoder = msgspec.json.Decoder(RouterServices)
