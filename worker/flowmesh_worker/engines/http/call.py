"""The types of an HTTP call and its answer, shared by the engines and the client."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from flowmesh_core.errors import FailureKind

HIDDEN = "[secret]"
_HIDE_FROM_CHARS = 8


@dataclass(frozen=True, slots=True)
class Credential:
    """A header that authorises calls, with its secret. It is never printed.

    Attributes:
        header: the header's name.
        value: the header's value.
        secret: the part of ``value`` that must not appear in texts.
        require_host: raises AttemptError for a URL whose host may not get the secret.
    """

    header: str
    value: str = field(repr=False)
    secret: str = field(repr=False)
    require_host: Callable[[str], None] = field(repr=False)

    def hide(self, text: str) -> str:
        """Returns a text without the secret, since servers may echo it.

        A secret of a few characters is not removed: that would spoil unrelated words.
        """
        return text.replace(self.secret, HIDDEN) if len(self.secret) >= _HIDE_FROM_CHARS else text


@dataclass(frozen=True, slots=True)
class Call:
    """One HTTP request, with its limits.

    Attributes:
        method: in capitals.
        url: ``https:``, or ``http:`` to addresses that an administrator allowed.
        headers: sent only to the URL's own origin.
        body: the content, or None.
        credential: sent only to the URL's own origin.
        timeout_s: for one try, including the answer's content.
        max_bytes: limit of the answer's content.
        retries: the number of further tries.
        repeatable: whether a second try is harmless after the server may have seen the first.
        hosts: the allowed hosts, also for redirects; None for any.
    """

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes | None = None
    credential: Credential | None = None
    timeout_s: float = 60.0
    max_bytes: int = 1 << 20
    retries: int = 3
    repeatable: bool = False
    hosts: frozenset[str] | None = None

    def hide(self, text: str) -> str:
        """Returns a text without the call's secret."""
        return self.credential.hide(text) if self.credential else text


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """A server's answer with any status; its content does not contain the call's secret."""

    url: str
    status: int
    text: str
    retry_after_s: float = 0.0


class CallError(Exception):
    """A call without a usable answer.

    Attributes:
        kind: ``bad-input`` if another try would fail in the same way, else ``engine``.
        message: names the URL without secret parts.
        remedy: what to try.
        status: of the answer; 0 without one.
        retry_after_s: the wait that the server requested.
        detail: the beginning of the answer.
        sent: whether the server may have seen the call.
    """

    def __init__(
        self,
        kind: FailureKind,
        message: str,
        remedy: str = "",
        *,
        status: int = 0,
        retry_after_s: float = 0.0,
        detail: str = "",
        sent: bool = True,
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.remedy = remedy
        self.status = status
        self.retry_after_s = retry_after_s
        self.detail = detail
        self.sent = sent
