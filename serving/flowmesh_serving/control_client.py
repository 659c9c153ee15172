"""Reads services from the control plane of a cluster, has it review tokens, and reports to it.

While no control plane answers, the router goes on with what it read last.
"""

import asyncio
import ssl
from pathlib import Path

import aiohttp
import msgspec

from flowmesh_core.decoding import decode
from flowmesh_core.errors import FlowMeshError
from flowmesh_core.protocol.caller_review import CallerReview, CallerReviewRequest
from flowmesh_core.protocol.router_reports import RouterReport
from flowmesh_core.protocol.router_services import RouterServices

PATH = "/v1/router"
CALLERS = f"{PATH}/callers"
_WITHIN_S = 10.0
_REVIEW_WITHIN_S = 5.0
"""Shorter: a client waits for the answer."""
_OK = 200


class ControlClient:
    """Asks the control plane for the services and about tokens, and sends it reports."""

    def __init__(self, url: str, token: Path, ca: Path | None) -> None:
        """Connects with each request.

        Args:
            url: of the gateway, such as ``https://flowmesh-gateway.flowmesh.svc:8470``.
            token: the file with the router's token; read each time, since Kubernetes renews it.
            ca: certificates (PEM) that the gateway's is verified with; None for the system's.
        """
        self._url = url.rstrip("/")
        self._token = token
        self._ca = ca
        self._last = b""

    async def read(self) -> RouterServices | None:
        """Returns the services; None where they have not changed.

        Raises:
            FlowMeshError: the control plane does not answer, or refuses.
        """
        try:
            body = await self._ask("GET", PATH, b"", _WITHIN_S)
            if body == self._last:
                return None
            listed = decode(_decoder, body)
        except (OSError, aiohttp.ClientError, TimeoutError, msgspec.DecodeError) as e:
            raise FlowMeshError(
                f"the services cannot be read from the control plane: {e or type(e).__name__}",
                where=self._url + PATH,
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
            await self._ask("POST", PATH, msgspec.json.encode(report), _WITHIN_S)
        except (OSError, aiohttp.ClientError, TimeoutError) as e:
            raise FlowMeshError(
                f"the control plane does not take a report: {e or type(e).__name__}",
                where=self._url + PATH,
                remedy="the router reports again every few seconds; requests are served without it",
            ) from e

    async def review(self, token: str, namespace: str) -> CallerReview:
        """Returns whether a token's user may call the services of a namespace.

        Args:
            token: of Kubernetes.
            namespace: empty for the user's own.

        Raises:
            FlowMeshError: the control plane does not answer, or refuses.
        """
        asked = msgspec.json.encode(CallerReviewRequest(token, namespace))
        try:
            body = await self._ask("POST", CALLERS, asked, _REVIEW_WITHIN_S)
            return decode(_review_decoder, body)
        except (OSError, aiohttp.ClientError, TimeoutError, msgspec.DecodeError) as e:
            raise FlowMeshError(
                f"the control plane does not review a token: {e or type(e).__name__}",
                where=self._url + CALLERS,
                remedy="the client tries again; the router's own token needs `get` on /v1/router",
            ) from e

    async def _ask(self, method: str, path: str, data: bytes, within_s: float) -> bytes:
        token = await asyncio.to_thread(self._token.read_text, encoding="utf-8")
        secure: ssl.SSLContext | bool = True
        if self._ca is not None:
            secure = await asyncio.to_thread(ssl.create_default_context, cafile=self._ca)
        headers = {"Authorization": f"Bearer {token.strip()}", "Content-Type": "application/json"}
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=within_s)) as session,
            session.request(
                method, self._url + path, data=data, headers=headers, ssl=secure,
                allow_redirects=False,
            ) as response,
        ):  # fmt: skip
            body = await response.read()
            if response.status != _OK:
                text = body[:500].decode(errors="replace")
                raise aiohttp.ClientError(f"status {response.status}: {text}")
            return body


_decoder = msgspec.json.Decoder(RouterServices)
_review_decoder = msgspec.json.Decoder(CallerReview)
