"""Downloads a user's URL: checks addresses, limits redirects and size."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from urllib.parse import urljoin

import aiohttp

from flowmesh_core.errors import AttemptError, Failure, FailureKind
from flowmesh_worker.engines.egress.addresses import AddressPolicy, FilteringResolver
from flowmesh_worker.engines.egress.urls import HostError, origin, parse_target, redacted

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_REDIRECTS_MAX = 5
_CHANGED = 412
_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})
_OK = frozenset({200, 206})
_PIECE = 1 << 20
_CONNECT_S = 15.0
_SILENCE_S = 60.0
UNREACHED = (
    "check the name, and the worker's network (on a cluster its pool's egress); without one, give a"
    " local file or folder, such as ./model"
)
"""What to do where a server does not answer."""
_NO_REMEDIES: Mapping[int, str] = {}
Headers = Mapping[str, str]
Sign = Callable[[str, str], Headers]
"""Returns headers for a method and URL: signatures, tokens. Not sent to other hosts."""


@dataclass(frozen=True, slots=True)
class Downloaded:
    """The content (empty after ``HEAD``), and the server's headers about it."""

    url: str
    content: bytes
    etag: str
    last_modified: str
    size_bytes: int


class Downloader:
    """Downloads files from permitted addresses."""

    def __init__(self, rule: AddressPolicy, max_bytes: int) -> None:
        """Creates a downloader.

        Args:
            rule: decides which addresses may be reached.
            max_bytes: limit of one answer.
        """
        self._rule = rule
        self._max_bytes = max_bytes

    async def fetch(
        self,
        url: str,
        *,
        method: str = "GET",
        sign: Sign | None = None,
        if_match: str = "",
        on_progress: Callable[[int, int], None] | None = None,
        remedies: Mapping[int, str] = _NO_REMEDIES,
    ) -> Downloaded:
        """Fetches a URL; checks and follows each redirect.

        Args:
            url: ``https:``; ``http:`` only to addresses that an administrator allowed.
            method: ``GET`` or ``HEAD``.
            sign: returns headers for the first host.
            if_match: the etag that the content must still have.
            on_progress: called with bytes so far and in total (0 if unknown).
            remedies: remedies by error status.

        Raises:
            AttemptError: the URL is refused, missing, changed or too large, or does not answer.
        """
        connector = aiohttp.TCPConnector(
            resolver=FilteringResolver(self._rule), use_dns_cache=False, force_close=True
        )
        timeout = aiohttp.ClientTimeout(total=None, connect=_CONNECT_S, sock_read=_SILENCE_S)
        first = origin(url)
        async with aiohttp.ClientSession(connector=connector, timeout=timeout) as http:
            for _ in range(_REDIRECTS_MAX + 1):
                self._check(url)
                headers = {"If-Match": if_match} if if_match else {}
                if sign is not None and origin(url) == first:
                    headers |= sign(method, url)
                try:
                    async with http.request(
                        method, url, headers=headers, allow_redirects=False
                    ) as response:
                        if response.status not in _REDIRECTS:
                            _require_found(response.status, url, remedies)
                            return await self._take(response, url, on_progress)
                        url = urljoin(url, response.headers.get("Location", ""))
                except (aiohttp.ClientError, TimeoutError, OSError) as error:
                    message = f"{redacted(url)} did not answer: {error}"
                    raise _failed(FailureKind.ENGINE, message, UNREACHED) from error
        raise _failed(FailureKind.BAD_INPUT, f"{redacted(url)} redirects too often")

    def _check(self, url: str) -> None:
        why = ""
        try:
            place = parse_target(url)
        except HostError as error:
            place, why = None, f": {error}"
        except ValueError:
            place = None
        if place is None or place.scheme not in ("https", "http"):
            raise _failed(
                FailureKind.BAD_INPUT,
                f"{redacted(url)} is not a URL that can be imported{why}",
                "use https:, s3:, hf: or a file that fmesh uploads",
            )
        if place.literal:
            self._rule.require(place.host, [place.literal])
        if place.scheme == "http" and not (place.literal and self._rule.opened(place.literal)):
            raise _failed(FailureKind.BAD_INPUT, f"{redacted(url)} is not encrypted", "use https:")

    async def _take(
        self,
        response: aiohttp.ClientResponse,
        url: str,
        on_progress: Callable[[int, int], None] | None,
    ) -> Downloaded:
        total = int(response.headers.get("Content-Length", 0) or 0)
        pieces, size = [], 0
        async for piece in response.content.iter_chunked(_PIECE):
            size += len(piece)
            if size > self._max_bytes:
                raise _failed(
                    FailureKind.BAD_INPUT,
                    f"{redacted(url)} is larger than {self._max_bytes >> 20} MiB",
                    "split it, or raise resources.memory of the import",
                )
            pieces.append(piece)
            if on_progress is not None:
                on_progress(size, total)
        return Downloaded(
            url=url,
            content=b"".join(pieces),
            etag=response.headers.get("ETag", ""),
            last_modified=response.headers.get("Last-Modified", ""),
            size_bytes=size or total,
        )


def _require_found(status: int, url: str, remedies: Mapping[int, str]) -> None:
    if status in _OK:
        return
    if status == _CHANGED:
        raise _failed(
            FailureKind.BAD_INPUT,
            f"{redacted(url)} has changed since this run resolved it",
            "submit the workflow again",
        )
    kind = FailureKind.ENGINE if status in _BUSY else FailureKind.BAD_INPUT
    raise _failed(
        kind, f"{redacted(url)} answers with HTTP status {status}", remedies.get(status, "")
    )


def _failed(kind: FailureKind, message: str, remedy: str = "") -> AttemptError:
    return AttemptError(Failure(kind, message, remedy))
