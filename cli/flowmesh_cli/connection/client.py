"""The control API as the CLI calls it: HTTP/1.1 by the standard library, which loads fast.

One client a thread. An error answer becomes an exception with the place, the reason and the remedy
that the server gave.
"""

import http.client
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from flowmesh_api.v1.problems import Problem
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_core.decoding import decode
from flowmesh_core.errors import SpecError

T = TypeVar("T")
TIMEOUT_S = 60.0
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
    500: ExitCode.INTERNAL,
    503: ExitCode.NO_FABRIC,
}


class FabricGoneError(CliError):
    """The fabric does not answer; a joined run may find another owner."""

    def __init__(self, url: str, why: str, *, remedy: str = "") -> None:
        """Takes the address and what the system said."""
        super().__init__(
            f"the fabric at {url} does not answer: {why}",
            ExitCode.NO_FABRIC,
            remedy=remedy or "start one with `fmesh up`, or run the same command again to resume",
        )


class AccessDeniedError(CliError):
    """The user may not see or do that."""


class Transport(Protocol):
    """How one comes to a control plane, and in whose name."""

    def connect(self, timeout_s: float | None) -> http.client.HTTPConnection:
        """A new connection.

        Raises:
            OSError: it cannot be made.
        """
        ...

    def token(self, *, renewed: bool) -> str:
        """The bearer token; a new one where the last was refused and there may be a newer."""
        ...


class LoopbackTransport:
    """Straight to the address, with a token that does not change: the laptop's way."""

    def __init__(self, url: str, token: str) -> None:
        """Takes ``http://host:port`` and the token."""
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._token = token

    def connect(self, timeout_s: float | None) -> http.client.HTTPConnection:
        """As :meth:`Way.connect`."""
        return http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)

    def token(self, *, renewed: bool) -> str:
        """As :meth:`Way.token`."""
        del renewed
        return self._token


class ApiClient:
    """Requests to one control plane."""

    def __init__(self, url: str, way: Transport, *, namespace: str = "") -> None:
        """Takes where it is and how to come there.

        Args:
            url: for messages.
            way: to it.
            namespace: whose runs are meant where none is named; empty for all.

        ``default_namespace`` is that of workflows which name none; empty leaves it to the server.
        """
        self.url = url
        self.namespace = namespace
        self.default_namespace = ""
        self._way = way
        self._token = ""
        self._connection: http.client.HTTPConnection | None = None

    @classmethod
    def at(cls, url: str, token: str) -> "ApiClient":
        """Of this machine."""
        return cls(url, LoopbackTransport(url, token))

    def where_allowed(self, path: str, kind: type[T], **query: Any) -> T | None:
        """As :meth:`get`; None where the user may not see it."""
        try:
            return self.get(path, kind, **query)
        except AccessDeniedError:
            return None

    def get(self, path: str, kind: type[T], **query: Any) -> T:
        """Reads a document.

        Raises:
            CliError: the server refused, or (as FabricGoneError) there is none.
            SpecError: what was sent is wrong, with every problem.
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
    ) -> T:
        """Sends a request as :meth:`call`, and returns what the answer says.

        Raises:
            CliError: as :meth:`get`; also where the answer is not of this kind.
        """
        answer = self.call(method, path, query=query, document=document, body=body)
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
    ) -> bytes:
        """Sends a request and reads the whole answer; raises as :meth:`get`.

        A body that is a file is sent on a connection of its own, which waits as long as it takes:
        the file cannot be sent again where a kept connection is closed, and is decoded before the
        answer comes.
        """
        if not _repeatable(method, body):
            own = ApiClient(self.url, self._way, namespace=self.namespace)
            try:
                response = own._send(method, path, query or {}, body=body, timeout_s=None)
                return self._whole(response)
            finally:
                own.close()
        return self._whole(self._send(method, path, query or {}, document=document, body=body))

    def _whole(self, response: http.client.HTTPResponse) -> bytes:
        data = response.read()
        if response.status >= http.HTTPStatus.BAD_REQUEST:
            raise self._error(response.status, data)
        return data

    def lines(self, path: str, **query: Any) -> Iterator[bytes]:
        """Reads newline-delimited JSON as it comes, on a connection of its own."""
        own = ApiClient(self.url, self._way, namespace=self.namespace)
        response = own._send("GET", path, query, timeout_s=None)
        try:
            if response.status >= http.HTTPStatus.BAD_REQUEST:
                raise self._error(response.status, response.read())
            while line := response.readline():
                if line.strip():
                    yield line
        except (OSError, http.client.HTTPException) as e:
            raise FabricGoneError(self.url, str(e)) from e
        finally:
            own.close()

    def download(self, path: str, target: Path, **query: Any) -> int:
        """Writes an answer to a file, which appears whole or not at all; its size in bytes.

        Raises:
            CliError: the answer broke off.
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
                "the content broke off: a part of it is lost or spoiled in the store",
                ExitCode.FAILED,
                where=path,
                remedy="run the workflow again: what is lost is made again",
            ) from e
        finally:
            temporary.unlink(missing_ok=True)
        return written

    def close(self) -> None:
        """Closes the connection; harmless when repeated."""
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
        timeout_s: float | None = TIMEOUT_S,
    ) -> http.client.HTTPResponse:
        given = {k: _text(v) for k, v in query.items() if v not in (None, "", False)}
        target = quote(path, safe="/%[]=*.,:") + (f"?{urlencode(given)}" if given else "")
        headers = {}
        if document is not None:
            body, headers["Content-Type"] = msgspec.json.encode(document), "application/json"
        response = self._twice(method, target, body, headers, timeout_s)
        if response.status != http.HTTPStatus.UNAUTHORIZED or not _repeatable(method, body):
            return response
        before = self._token
        self._token = self._way.token(renewed=True)  # one of a kubeconfig may have expired
        if self._token == before:
            return response
        response.read()
        return self._twice(method, target, body, headers, timeout_s)

    def _twice(
        self, method: str, target: str, body: Any, headers: dict[str, str], timeout_s: float | None
    ) -> http.client.HTTPResponse:
        fresh = self._connection is None
        try:
            return self._try(method, target, body, headers, timeout_s)
        except (OSError, http.client.HTTPException) as e:
            self.close()
            if fresh or not _repeatable(method, body) or isinstance(e, TimeoutError):
                raise self._gone(e) from e
        try:  # a kept connection may have been closed by the server meanwhile
            return self._try(method, target, body, headers, timeout_s)
        except (OSError, http.client.HTTPException) as e:
            self.close()
            raise self._gone(e) from e

    def _error(self, status: int, data: bytes) -> CliError | SpecError:
        return error_of(status, data)

    def _gone(self, error: Exception) -> FabricGoneError:
        return FabricGoneError(self.url, str(error) or type(error).__name__)

    def _try(
        self, method: str, target: str, body: Any, headers: dict[str, str], timeout_s: float | None
    ) -> http.client.HTTPResponse:
        self._token = self._token or self._way.token(renewed=False)
        if self._connection is None:
            self._connection = self._way.connect(timeout_s)
        sent = {**headers, "Authorization": f"Bearer {self._token}"}
        self._connection.request(method, target, body=body, headers=sent)
        return self._connection.getresponse()


def _repeatable(method: str, body: Any) -> bool:
    return method == "GET" or isinstance(body, bytes | None)


def error_of(status: int, data: bytes) -> CliError | SpecError:
    """The exception that an error answer stands for."""
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
    # With a code it is no fault of the control plane, whatever the status.
    has_code = isinstance(found, dict) and found.get("code")
    code = ExitCode.FAILED if has_code else _CODES.get(status, ExitCode.FAILED)
    kind = AccessDeniedError if status == http.HTTPStatus.FORBIDDEN else CliError
    return kind(message or f"HTTP {status}", code, where=where, remedy=remedy)


def _text(value: Any) -> str:
    return "1" if value is True else str(value)
