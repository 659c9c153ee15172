"""The control API as the CLI calls it: HTTP/1.1 by the standard library, which loads fast.

One client a thread. An error answer becomes an exception with the place, the reason and the remedy
that the server gave.
"""

import http.client
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

import msgspec

from flowmesh_cli.exits import ExitCode
from flowmesh_cli.failing import CliError
from flowmesh_core.errors import Problem, SpecError

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

    def __init__(self, url: str, why: str) -> None:
        """Takes the address and what the system said."""
        super().__init__(
            f"the fabric at {url} does not answer: {why}",
            ExitCode.NO_FABRIC,
            remedy="start one with `fmesh up`, or run the same command again to resume",
        )


class Http:
    """Requests to one control plane."""

    def __init__(self, url: str, token: str) -> None:
        """Takes the API's address, ``http://host:port``, and the token."""
        self.url = url
        parts = urlsplit(url)
        self._host, self._port = parts.hostname or "127.0.0.1", parts.port or 80
        self._headers = {"Authorization": f"Bearer {token}"}
        self._connection: http.client.HTTPConnection | None = None

    def get(self, path: str, kind: type[T], **query: Any) -> T:
        """Reads a document.

        Raises:
            CliError: the server refused, or (as FabricGoneError) there is none.
            SpecError: what was sent is wrong, with every problem.
        """
        return msgspec.json.decode(self.call("GET", path, query=query), type=kind)

    def call(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        document: Any = None,
        body: Any = None,
    ) -> bytes:
        """Sends a request and reads the whole answer; raises as :meth:`get`."""
        response = self._send(method, path, query or {}, document=document, body=body)
        data = response.read()
        if response.status >= http.HTTPStatus.BAD_REQUEST:
            raise error_of(response.status, data)
        return data

    def lines(self, path: str, **query: Any) -> Iterator[bytes]:
        """Reads newline-delimited JSON as it comes, on a connection of its own."""
        own = Http.__new__(Http)
        own.url, own._host, own._port = self.url, self._host, self._port
        own._headers, own._connection = self._headers, None
        response = own._send("GET", path, query, timeout_s=None)
        try:
            if response.status >= http.HTTPStatus.BAD_REQUEST:
                raise error_of(response.status, response.read())
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
            raise error_of(response.status, response.read())
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
        headers = dict(self._headers)
        if document is not None:
            body, headers["Content-Type"] = msgspec.json.encode(document), "application/json"
        fresh = self._connection is None
        try:
            return self._try(method, target, body, headers, timeout_s)
        except (OSError, http.client.HTTPException) as e:
            self.close()
            repeatable = method == "GET" or isinstance(body, bytes | None)
            if fresh or not repeatable or isinstance(e, TimeoutError):
                raise FabricGoneError(self.url, str(e) or type(e).__name__) from e
        try:  # a kept connection may have been closed by the server meanwhile
            return self._try(method, target, body, headers, timeout_s)
        except (OSError, http.client.HTTPException) as e:
            self.close()
            raise FabricGoneError(self.url, str(e) or type(e).__name__) from e

    def _try(
        self, method: str, target: str, body: Any, headers: dict[str, str], timeout_s: float | None
    ) -> http.client.HTTPResponse:
        if self._connection is None:
            self._connection = http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)
        self._connection.request(method, target, body=body, headers=headers)
        return self._connection.getresponse()


def error_of(status: int, data: bytes) -> CliError | SpecError:
    """The exception that an error answer stands for."""
    try:
        found = json.loads(data)["error"]
        message, where = str(found["message"]), str(found.get("where", ""))
        remedy = str(found.get("remedy", ""))
        problems = [Problem(**p) for p in found.get("problems", ())]
    except (ValueError, KeyError, TypeError):
        message, where, remedy, problems = data[:200].decode(errors="replace"), "", "", []
    if problems:
        return SpecError(problems)
    code = _CODES.get(status, ExitCode.FAILED)
    return CliError(message or f"HTTP {status}", code, where=where, remedy=remedy)


def _text(value: Any) -> str:
    return "1" if value is True else str(value)
