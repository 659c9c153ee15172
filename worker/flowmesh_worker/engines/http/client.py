"""Sends HTTP calls: checks addresses at each connection, limits size and time, and retries.

Used by ``http.request``, ``http.chat`` and the tool ``http`` of ``llm.agent``; one client for each
engine instance.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any
from urllib.parse import urljoin

import aiohttp

from flowmesh_core.errors import AttemptError, FailureKind
from flowmesh_worker.engines.egress.addresses import AddressPolicy, FilteringResolver
from flowmesh_worker.engines.egress.urls import HostError, origin, parse_target, redacted
from flowmesh_worker.engines.http.call import Call, CallError, HttpResponse
from flowmesh_worker.engines.http.retrying import may_retry, retry_after_s, wait_s

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_REDIRECTS_MAX = 5
_FOLLOWED = frozenset({"GET", "HEAD"})
_CONNECT_S = 15.0
_PIECE = 1 << 16
_SCHEMES = ("https", "http")


class HttpClient:
    """An HTTP client without cookies, proxies or credentials of its own; must be closed."""

    def __init__(
        self, rule: AddressPolicy, wait: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        """Creates a client without connections.

        Args:
            rule: decides which addresses may be reached.
            wait: sleeps between two tries.
        """
        self._rule = rule
        self._wait = wait
        self._sessions: dict[tuple[str, bool], aiohttp.ClientSession] = {}

    async def call(self, call: Call) -> HttpResponse:
        """Sends a call, and repeats it as :func:`may_retry` permits.

        Returns:
            The last answer, whatever its status.

        Raises:
            CallError: there was no answer, or it was too large.
        """
        tried = 0
        while True:
            tried += 1
            asked_s = None
            ended: HttpResponse | CallError
            try:
                ended, asked_s = await self._once(call)
            except CallError as error:
                ended = error
            wait = wait_s(tried, asked_s)
            if not may_retry(call, tried, ended, wait):
                break
            await self._wait(wait)
        if isinstance(ended, CallError):
            raise ended
        return ended

    async def close(self) -> None:
        """Closes the connections."""
        for session in self._sessions.values():
            await session.close()
        self._sessions.clear()

    async def _once(self, call: Call) -> tuple[HttpResponse, float | None]:
        """Tries once, following redirects of GET and HEAD; returns the requested wait too."""
        url = call.url
        sent = False
        for _ in range(_REDIRECTS_MAX + 1):
            self._check(call, url)
            seen = SimpleNamespace(sent=False)
            try:
                headers = _headers(call, url)
                async with self._session(call, url).request(
                    call.method,
                    url,
                    headers=headers,
                    data=call.body,
                    allow_redirects=False,
                    timeout=aiohttp.ClientTimeout(
                        total=call.timeout_s, connect=min(_CONNECT_S, call.timeout_s)
                    ),
                    trace_request_ctx=seen,
                ) as response:
                    onward = response.headers.get("Location", "")
                    follow = response.status in _REDIRECTS and call.method in _FOLLOWED and onward
                    if not follow:
                        return await _take(call, response, url)
            except AttemptError as error:
                raise _refused(error) from None
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
                raise _no_answer(call, url, error, sent=sent or seen.sent) from None
            url, sent = urljoin(url, onward), True
        raise CallError(FailureKind.BAD_INPUT, f"{redacted(call.url)} redirects too often")

    def _check(self, call: Call, url: str) -> None:
        """Checks what the resolver does not see: the scheme, and hosts that are addresses."""
        why = ""
        try:
            place = parse_target(url)
        except HostError as error:
            place, why = None, f": {error}"
        except ValueError:
            place = None
        if place is None or place.scheme not in _SCHEMES:
            raise CallError(
                FailureKind.BAD_INPUT,
                f"{redacted(url) or 'an empty text'} is not a URL that can be called{why}",
                "use https://HOST/...",
                sent=False,
            )
        if call.hosts is not None and place.host not in call.hosts:
            raise CallError(
                FailureKind.BAD_INPUT,
                f"{redacted(url)} is not on an allowed host",
                f"the allowed hosts are {', '.join(sorted(call.hosts))}",
                sent=False,
            )
        if not place.literal:
            return
        try:
            self._rule.require(place.host, [place.literal])
            if place.scheme == "http":
                self._rule.require_opened(place.host, [place.literal])
        except AttemptError as error:
            raise _refused(error) from None

    def _session(self, call: Call, url: str) -> aiohttp.ClientSession:
        # A reused connection may turn out closed after the call was written, which looks the same
        # as a server that died during the call: calls that must not be repeated use new ones.
        key = (parse_target(url).scheme, call.repeatable)
        session = self._sessions.get(key)
        if session is None:
            connector = aiohttp.TCPConnector(
                resolver=FilteringResolver(self._rule, opened_only=key[0] == "http"),
                use_dns_cache=False,
                force_close=not call.repeatable,
                limit=0,
            )
            session = self._sessions[key] = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": "flowmesh"},
                trace_configs=[_tells_when_sent()],
            )
        return session


def _refused(error: AttemptError) -> CallError:
    failure = error.failure
    return CallError(failure.kind, failure.message, failure.remedy, sent=False)


def _headers(call: Call, url: str) -> dict[str, str]:
    """Returns the headers for a URL: none of the user's headers go to another origin.

    Raises:
        AttemptError: the credential's secret may not be sent to this host.
    """
    if origin(url) != origin(call.url):
        return {}
    headers = dict(call.headers)
    if call.credential is not None:
        call.credential.require_host(url)
        headers[call.credential.header] = call.credential.value
    return headers


async def _take(
    call: Call, response: aiohttp.ClientResponse, url: str
) -> tuple[HttpResponse, float | None]:
    pieces, size = [], 0
    async for piece in response.content.iter_chunked(_PIECE):
        size += len(piece)
        if size > call.max_bytes:
            raise CallError(
                FailureKind.BAD_INPUT,
                f"the answer of {redacted(url)} is larger than {call.max_bytes:,} bytes",
                "raise with.maxBytes, or request less",
                status=response.status,
            )
        pieces.append(piece)
    asked_s = retry_after_s(response.headers, time.time())
    text = _decoded(b"".join(pieces), response.charset)
    return HttpResponse(url, response.status, call.hide(text), asked_s or 0.0), asked_s


def _decoded(content: bytes, charset: str | None) -> str:
    try:
        return content.decode(charset or "utf-8", errors="replace")
    except LookupError:
        return content.decode(errors="replace")


def _no_answer(call: Call, url: str, error: Exception, *, sent: bool) -> CallError:
    if isinstance(error, TimeoutError):
        why = f"did not answer within {call.timeout_s:g} s" if sent else "could not be reached"
    elif isinstance(error, ValueError):
        return CallError(
            FailureKind.BAD_INPUT,
            call.hide(f"{redacted(url)} cannot be called: {error}"),
            "correct with.url or with.headers",
            sent=sent,
        )
    else:
        why = f"did not answer: {error or type(error).__name__}"
    after = ""
    if sent and not call.repeatable:
        after = (
            "it may have acted on the call; check there before you run this again, or set"
            " with.idempotent if a repeated call is harmless"
        )
    return CallError(FailureKind.ENGINE, call.hide(f"{redacted(url)} {why}"), after, sent=sent)


def _tells_when_sent() -> aiohttp.TraceConfig:
    """Records when the headers of a call are sent; before that, a server cannot have seen it.

    aiohttp repeats idempotent methods (``PUT``, ``DELETE``) itself if a server closes the
    connection, and cannot be configured not to. Only the user knows whether that is harmless, so
    the second try is refused here.
    """

    async def note(_session: Any, context: Any, _params: Any) -> None:
        seen = context.trace_request_ctx
        if seen.sent:
            raise aiohttp.ServerDisconnectedError
        seen.sent = True

    config = aiohttp.TraceConfig()
    config.on_request_headers_sent.append(note)
    return config
