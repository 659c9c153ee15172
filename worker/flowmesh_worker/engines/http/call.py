"""One call of a server and its answer: the words between the engines and the client."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from flowmesh_core.errors import FailureKind

HIDDEN = "[secret]"
_HIDE_FROM_CHARS = 8


@dataclass(frozen=True, slots=True)
class Credential:
    """A header that authorises calls, and the secret in it. It is never printed.

    Attributes:
        header: the header's name.
        value: the header's value.
        secret: what must not be told; inside ``value``.
    """

    header: str
    value: str = field(repr=False)
    secret: str = field(repr=False)

    def hide(self, text: str) -> str:
        """A text without the secret: servers may say what they were sent.

        A secret of a few characters is left: hiding it would spoil unrelated words.
        """
        return text.replace(self.secret, HIDDEN) if len(self.secret) >= _HIDE_FROM_CHARS else text


@dataclass(frozen=True, slots=True)
class Call:
    """What a server is asked.

    Attributes:
        method: in capitals.
        url: ``https:``, or ``http:`` to addresses that an administrator opened.
        headers: sent to the URL's own origin alone.
        body: the content; None where there is none.
        credential: sent to the URL's own origin alone.
        timeout_s: for one try, its answer's content included.
        max_bytes: the most that an answer's content may have.
        retries: how many further tries there may be.
        repeatable: whether a second try is harmless once the server may have seen the first.
        hosts: those that it may go to, redirects included; None is any.
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
        """A text without the call's secret."""
        return self.credential.hide(text) if self.credential else text


@dataclass(frozen=True, slots=True)
class HttpResponse:
    """What a server said: any status, and the whole content, without the call's secret."""

    url: str
    status: int
    text: str
    retry_after_s: float = 0.0


class CallError(Exception):
    """A call that has no answer, or none that can be used.

    Attributes:
        kind: ``bad-input`` where another try ends the same way, else ``engine``.
        message: names the URL without what may be secret in it.
        remedy: what to try.
        status: of the answer; 0 where there was none.
        retry_after_s: what the server asked to wait.
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
        """Takes what happened."""
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.remedy = remedy
        self.status = status
        self.retry_after_s = retry_after_s
        self.detail = detail
        self.sent = sent
