"""Requests to the control API: HTTP/1.1 by the standard library, which loads fast.

The client of ``fmesh`` and of Python programs. It belongs to one thread. An error response becomes
an exception with the server's place, reason and remedy.
"""

import contextlib
import http.client
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from flowmesh_api.decoding import decode
from flowmesh_api.v1.problems import Problem
from flowmesh_api.v1.version import API_VERSION, VERSION_HEADER
from flowmesh_sdk.errors import (
    ApiError,
    FabricUnavailableError,
    FlowMeshError,
    InvalidWorkflowError,
)
from flowmesh_sdk.http.transports import LoopbackTransport, Transport

T = TypeVar("T")
TIMEOUT_S = 60.0
RETRY_AFTER_MAX_S = 5.0
"""The longest wait for a rate limit, after which a request is sent once more."""
_CHUNK_BYTES = 1 << 20
_SHOWN_BYTES = 200
"""Of an error response that is not one of the control plane's."""


class ErrorResponse(msgspec.Struct, frozen=True):
    """An error response of the server.

    Attributes:
        status: of HTTP.
        message, where, remedy, code: see ``ErrorDetails``.
        problems: every mistake of a workflow that was refused.
    """

    status: int
    message: str
    where: str = ""
    remedy: str = ""
    code: str = ""
    problems: tuple[Problem, ...] = ()


class ApiConnection:
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
    def at(cls, url: str, token: str) -> Self:
        """Returns the client of a fabric on this machine."""
        return cls(url, LoopbackTransport(url, token))

    def get(self, path: str, kind: type[T], **query: Any) -> T:
        """Reads a document.

        Raises:
            ApiError: the server refused.
            FabricUnavailableError: it does not answer.
            InvalidWorkflowError: it found mistakes in what was sent.
        """
        return self.ask("GET", path, kind, query=query)

    def find(self, path: str, kind: type[T]) -> T | None:
        """Reads a document as :meth:`get`; returns None where there is none."""
        response = self._send("GET", path, {})
        if response.status == http.HTTPStatus.NOT_FOUND:
            response.read()
            return None
        return self._decoded(f"GET {path}", self._read_body(response), kind)

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
            FlowMeshError: as :meth:`get`; also where the answer is not of this kind.
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
        return self._decoded(f"{method} {path}", answer, kind)

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
            separate = self.clone()
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

    def _decoded(self, request: str, answer: bytes, kind: type[T]) -> T:
        try:
            return decode(msgspec.json.Decoder(kind), answer)
        except msgspec.DecodeError as e:
            raise self.misread(request, e) from e

    def _read_body(self, response: http.client.HTTPResponse) -> bytes:
        data = response.read()
        if response.status >= http.HTTPStatus.BAD_REQUEST:
            raise self.refused(_refusal(response.status, data))
        return data

    def download(self, path: str, target: Path, **query: Any) -> int:
        """Writes a response to a file, whole or not at all; returns its size in bytes.

        Raises:
            FlowMeshError: the response was incomplete.
        """
        response = self._send("GET", path, query)
        if response.status >= http.HTTPStatus.BAD_REQUEST:
            raise self.refused(_refusal(response.status, response.read()))
        temporary = target.with_name(f".{target.name}.part")
        try:
            with temporary.open("wb") as file:
                while data := response.read(_CHUNK_BYTES):
                    file.write(data)
                written = file.tell()
            temporary.replace(target)
        except (http.client.HTTPException, ConnectionError) as e:
            self.close()
            raise self.incomplete(path) from e
        finally:
            temporary.unlink(missing_ok=True)
        return written

    @contextlib.contextmanager
    def stream(self, path: str, *, accept: str = "", **query: Any) -> Iterator[Iterator[bytes]]:
        """Yields a response's pieces as they come, on a connection of its own without a timeout.

        Args:
            path: of the request.
            accept: the media type that the response must have; any where empty.
            query: its parameters.

        Raises:
            FlowMeshError: as :meth:`get`; while the pieces are read, that the rest is missing.
        """
        separate = self.clone()
        try:
            response = separate._send("GET", path, query, accept=accept, timeout_s=None)
            if response.status >= http.HTTPStatus.BAD_REQUEST:
                raise self.refused(_refusal(response.status, response.read()))
            if accept and (found := response.getheader("Content-Type", "")) != accept:
                raise self.misread(f"GET {path}", f"it is {found or 'of no type'}, not {accept}")
            yield separate._pieces(response, path)
        finally:
            separate.close()

    def _pieces(self, response: http.client.HTTPResponse, path: str) -> Iterator[bytes]:
        try:
            while data := response.read1(_CHUNK_BYTES):
                yield data
        except (http.client.HTTPException, ConnectionError) as e:
            raise self.incomplete(path) from e
        if response.length:  # `read1` reports no early end where the length was said
            raise self.incomplete(path)

    def clone(self) -> Self:
        """Returns a client of the same fabric with a connection of its own, for another thread."""
        other = type(self).__new__(type(self))
        other.__dict__.update(self.__dict__, _connection=None)
        return other

    def refused(self, refusal: ErrorResponse) -> Exception:
        """Returns the exception for an error response."""
        if refusal.problems:
            return InvalidWorkflowError(refusal.problems)
        return ApiError(
            refusal.message,
            status=refusal.status,
            code=refusal.code,
            where=refusal.where,
            remedy=refusal.remedy,
        )

    def misread(self, request: str, error: msgspec.DecodeError | str) -> Exception:
        """Returns the exception for an answer that is not of the expected kind."""
        return FlowMeshError(
            f"the answer is not what this version expects: {error}",
            where=request,
            remedy="compare the versions of this package and of the control plane, and check that "
            f"{self.url} is a control plane",
        )

    def incomplete(self, path: str) -> Exception:
        """Returns the exception for content of which a part did not come."""
        return FlowMeshError(
            "the content is incomplete: a part of it is missing or damaged in the store",
            where=path,
            remedy="run the workflow again: missing results are computed again",
        )

    def unreachable(self, why: str) -> Exception:
        """Returns the exception for a fabric that does not answer."""
        return FabricUnavailableError(
            f"the fabric at {self.url} does not answer: {why}",
            remedy="start one with `fmesh up`, or make the same call again",
        )

    def lacking(self, version: str) -> Exception:
        """Returns the exception for a fabric whose version of the API this client cannot use."""
        return FlowMeshError(
            f"it has version {version} of the API, this client needs {API_VERSION}",
            where=f"fabric at {self.url}",
            remedy="upgrade the fabric (on this machine, stop it and start it with this "
            "installation), or install the client of its release",
        )

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
        accept: str = "",
        timeout_s: float | None = TIMEOUT_S,
    ) -> http.client.HTTPResponse:
        parameters = {k: _text(v) for k, v in query.items() if v not in (None, "", False)}
        target = quote(path, safe="/%[]=*.,:") + (f"?{urlencode(parameters)}" if parameters else "")
        given = {"Content-Type": content_type, "Accept": accept}
        headers = {name: value for name, value in given.items() if value}
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
                raise self.unreachable(str(e) or type(e).__name__) from e
        try:  # the server may have closed a reused connection
            return self._try(method, target, body, headers, timeout_s)
        except (OSError, http.client.HTTPException) as e:
            self.close()
            raise self.unreachable(str(e) or type(e).__name__) from e

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
        response = self._connection.getresponse()
        version = response.getheader(VERSION_HEADER, "")
        if not _serves(version):
            response.close()
            self.close()
            raise self.lacking(version)
        return response


def _serves(version: str) -> bool:
    """Returns whether an API of a version has all that this client may ask for.

    Within a major version things are only added. An answer without a version is not the control
    plane's, but a proxy's.
    """
    major, _, minor = version.partition(".")
    if not (major.isdigit() and minor.isdigit()):
        return True
    needed_major, needed_minor = map(int, API_VERSION.split("."))
    return int(major) == needed_major and int(minor) >= needed_minor


def _retry_after_s(response: http.client.HTTPResponse) -> float | None:
    """Returns for how long a rate limit asks to wait; None for any other response."""
    given = response.getheader("Retry-After", "")
    limited = response.status == http.HTTPStatus.TOO_MANY_REQUESTS and given.isdigit()
    return float(given) if limited else None


def _is_repeatable(method: str, body: Any) -> bool:
    return method == "GET" or isinstance(body, bytes | None)


def _refusal(status: int, data: bytes) -> ErrorResponse:
    try:
        details = decode(_errors, data).error
    except msgspec.DecodeError:
        text = data[:_SHOWN_BYTES].decode(errors="replace")
        return ErrorResponse(status, text or f"HTTP {status}")
    return ErrorResponse(
        status,
        details.message or f"HTTP {status}",
        _place(details.where),
        details.remedy,
        details.code,
        details.problems,
    )


def _place(where: str) -> str:
    """Returns the place without the form of a query, in which the API names a parameter."""
    is_parameter = where.startswith("?") and where.endswith("=")
    return where[1:-1] if is_parameter else where


def _text(value: Any) -> str:
    return "1" if value is True else str(value)


class _Error(msgspec.Struct):
    message: str
    where: str = ""
    remedy: str = ""
    problems: tuple[Problem, ...] = ()
    code: str = ""


class _ErrorDocument(msgspec.Struct):
    error: _Error


_errors = msgspec.json.Decoder(_ErrorDocument)
