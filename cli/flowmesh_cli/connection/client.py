"""The client of the control API: HTTP/1.1 by the standard library, which loads fast.

A client belongs to one thread. An error response becomes an exception with the server's place,
reason and remedy.
"""

import contextlib
import http.client
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from flowmesh_api.v1.errors import QUOTA
from flowmesh_api.v1.problems import Problem
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_core.decoding import decode
from flowmesh_core.errors import SpecError

T = TypeVar("T")
TIMEOUT_S = 60.0
RETRY_AFTER_MAX_S = 5.0
"""The longest wait for a rate limit, after which a request is sent once more."""
_CHUNK_BYTES = 1 << 20
_CODES = {
    400: ExitCode.USAGE,
    401: ExitCode.NO_FABRIC,
    402: ExitCode.REFUSED,
    403: ExitCode.REFUSED,
    404: ExitCode.NOT_FOUND,
    409: ExitCode.REFUSED,
    410: ExitCode.NOT_FOUND,
    413: ExitCode.USAGE,
    422: ExitCode.USAGE,
    429: ExitCode.REFUSED,
    500: ExitCode.INTERNAL,
    503: ExitCode.NO_FABRIC,
}


class FabricUnavailableError(CliError):
    """The fabric does not answer; a command that joined it may find another owner."""

    def __init__(self, url: str, why: str, *, remedy: str = "") -> None:
        super().__init__(
            f"the fabric at {url} does not answer: {why}",
            ExitCode.NO_FABRIC,
            remedy=remedy or "start one with `fmesh up`, or run the same command again to resume",
        )


class AccessDeniedError(CliError):
    """The user lacks the right to see or do that."""


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


class ApiClient:
    """Sends requests to one control plane.

    Attributes:
        namespace: the namespace whose runs are used where none is named; empty for all.
        default_namespace: the namespace of workflows that name none; empty leaves it to the server.
    """

    def __init__(self, url: str, way: Transport, *, namespace: str = "") -> None:
        """Opens no connection yet.

        Args:
            url: the address, for messages.
            way: the transport.
            namespace: see the attribute.
        """
        self.url = url
        self.namespace = namespace
        self.default_namespace = ""
        self._transport = way
        self._token = ""
        self._connection: http.client.HTTPConnection | None = None

    @classmethod
    def at(cls, url: str, token: str) -> "ApiClient":
        """Returns the client of a fabric on this machine."""
        return cls(url, LoopbackTransport(url, token))

    def where_allowed(self, path: str, kind: type[T], **query: Any) -> T | None:
        """Reads a document as :meth:`get`; returns None where the user may not see it."""
        try:
            return self.get(path, kind, **query)
        except AccessDeniedError:
            return None

    def get(self, path: str, kind: type[T], **query: Any) -> T:
        """Reads a document.

        Raises:
            CliError: the server refused, or (FabricUnavailableError) does not answer.
            SpecError: the server found problems in what was sent.
        """
        return self.ask("GET", path, kind, query=query)

    def ask(
        self,
        method: str,
        path: str,
        kind: type[T],
        *,
        query: Mapping[str, Any] | None = None,
        document: Any = None,
        body: Any = None,
        content_type: str = "",
        takes_long: bool = False,
    ) -> T:
        """Sends a request as :meth:`call`, and returns what the answer says.

        Raises:
            CliError: as :meth:`get`; also where the answer is not of this kind.
        """
        answer = self.call(
            method,
            path,
            query=query,
            document=document,
            body=body,
            content_type=content_type,
            takes_long=takes_long,
        )
        try:
            return decode(msgspec.json.Decoder(kind), answer)
        except msgspec.DecodeError as e:
            raise CliError(
                f"the answer is not what this version of fmesh expects: {e}",
                ExitCode.INTERNAL,
                where=f"{method} {path}",
                remedy="compare `fmesh --version` with the version of the control plane, and that "
                f"{self.url} is one",
            ) from e

    def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        document: Any = None,
        body: Any = None,
        content_type: str = "",
        takes_long: bool = False,
    ) -> bytes:
        """Sends a request and returns the response's body; raises as :meth:`get`.

        A file is sent on a separate connection without a timeout: it cannot be sent a second time
        where a reused connection turns out to be closed, and the server decodes all of it before it
        responds. So is a request that ``takes_long``, such as one that reads every result.
        """
        if takes_long or not _is_repeatable(method, body):
            separate = ApiClient(self.url, self._transport, namespace=self.namespace)
            try:
                response = separate._send(
                    method,
                    path,
                    query or {},
                    document=document,
                    body=body,
                    content_type=content_type,
                    timeout_s=None,
                )
                return self._read_body(response)
            finally:
                separate.close()
        response = self._send(
            method, path, query or {}, document=document, body=body, content_type=content_type
        )
        return self._read_body(response)

    def _read_body(self, response: http.client.HTTPResponse) -> bytes:
        data = response.read()
        if response.status >= http.HTTPStatus.BAD_REQUEST:
            raise self._error(response.status, data)
        return data

    def download(self, path: str, target: Path, **query: Any) -> int:
        """Writes a response to a file, whole or not at all; returns its size in bytes.

        Raises:
            CliError: the response was incomplete.
        """
        response = self._send("GET", path, query)
        if response.status >= http.HTTPStatus.BAD_REQUEST:
            raise self._error(response.status, response.read())
        temporary = target.with_name(f".{target.name}.part")
        try:
            with temporary.open("wb") as file:
                while data := response.read(_CHUNK_BYTES):
                    file.write(data)
                written = file.tell()
            temporary.replace(target)
        except (http.client.HTTPException, ConnectionError) as e:
            self.close()
            raise CliError(
                "the content is incomplete: a part of it is missing or damaged in the store",
                ExitCode.FAILED,
                where=path,
                remedy="run the workflow again: missing results are computed again",
            ) from e
        finally:
            temporary.unlink(missing_ok=True)
        return written

    def close(self) -> None:
        """Closes the connection; may be called more than once."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _send(
        self,
        method: str,
        path: str,
        query: Mapping[str, Any],
        *,
        document: Any = None,
        body: Any = None,
        content_type: str = "",
        timeout_s: float | None = TIMEOUT_S,
    ) -> http.client.HTTPResponse:
        parameters = {k: _text(v) for k, v in query.items() if v not in (None, "", False)}
        target = quote(path, safe="/%[]=*.,:") + (f"?{urlencode(parameters)}" if parameters else "")
        headers = {"Content-Type": content_type} if content_type else {}
        if document is not None:
            body, headers["Content-Type"] = msgspec.json.encode(document), "application/json"
        response = self._send_with_retry(method, target, body, headers, timeout_s)
        wait_s = _retry_after_s(response)
        if wait_s is not None and wait_s <= RETRY_AFTER_MAX_S and _is_repeatable(method, body):
            response.read()
            time.sleep(wait_s)
            response = self._send_with_retry(method, target, body, headers, timeout_s)
        if response.status != http.HTTPStatus.UNAUTHORIZED or not _is_repeatable(method, body):
            return response
        before = self._token
        self._token = self._transport.token(renewed=True)  # a kubeconfig's token may have expired
        if self._token == before:
            return response
        response.read()
        return self._send_with_retry(method, target, body, headers, timeout_s)

    def _send_with_retry(
        self, method: str, target: str, body: Any, headers: dict[str, str], timeout_s: float | None
    ) -> http.client.HTTPResponse:
        fresh = self._connection is None
        try:
            return self._try(method, target, body, headers, timeout_s)
        except (OSError, http.client.HTTPException) as e:
            self.close()
            if fresh or not _is_repeatable(method, body) or isinstance(e, TimeoutError):
                raise self._unreachable(e) from e
        try:  # the server may have closed a reused connection
            return self._try(method, target, body, headers, timeout_s)
        except (OSError, http.client.HTTPException) as e:
            self.close()
            raise self._unreachable(e) from e

    def _error(self, status: int, data: bytes) -> CliError | SpecError:
        return error_of(status, data)

    def _unreachable(self, error: Exception) -> FabricUnavailableError:
        return FabricUnavailableError(self.url, str(error) or type(error).__name__)

    def _try(
        self, method: str, target: str, body: Any, headers: dict[str, str], timeout_s: float | None
    ) -> http.client.HTTPResponse:
        self._token = self._token or self._transport.token(renewed=False)
        if self._connection is None:
            self._connection = self._transport.connect(timeout_s)
        all_headers = {**headers, "Authorization": f"Bearer {self._token}"}
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            # A server that refuses a body before it is complete closes the connection; its answer
            # says why. Where there is none, reading it fails in the same way.
            self._connection.request(method, target, body=body, headers=all_headers)
        return self._connection.getresponse()


def _retry_after_s(response: http.client.HTTPResponse) -> float | None:
    """Returns for how long a rate limit asks to wait; None for any other response."""
    given = response.getheader("Retry-After", "")
    limited = response.status == http.HTTPStatus.TOO_MANY_REQUESTS and given.isdigit()
    return float(given) if limited else None


def _is_repeatable(method: str, body: Any) -> bool:
    return method == "GET" or isinstance(body, bytes | None)


def error_of(status: int, data: bytes) -> CliError | SpecError:
    """Returns the exception of an error response."""
    found: Any = None
    try:
        found = json.loads(data)["error"]
        message, where = str(found["message"]), str(found.get("where", ""))
        remedy = str(found.get("remedy", ""))
        problems = [Problem(**p) for p in found.get("problems", ())]
    except (ValueError, KeyError, TypeError):
        message, where, remedy, problems = data[:200].decode(errors="replace"), "", "", []
    if problems:
        return SpecError(problems)
    # An error with a code is an expected one, whatever its status.
    error_code = found.get("code") if isinstance(found, dict) else ""
    known = not error_code or error_code == QUOTA
    code = _CODES.get(status, ExitCode.FAILED) if known else ExitCode.FAILED
    denied = status == http.HTTPStatus.FORBIDDEN and not error_code
    kind = AccessDeniedError if denied else CliError
    return kind(message or f"HTTP {status}", code, where=where, remedy=remedy)


def _text(value: Any) -> str:
    return "1" if value is True else str(value)
