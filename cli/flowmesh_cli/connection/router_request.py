"""One HTTP request to the router of ``fmesh serve``."""

import http.client
import json
from typing import Any
from urllib.parse import urlsplit

from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode

BROKEN = (OSError, http.client.HTTPException)
"""What reading an answer raises where its router is gone."""
_REMEDY = "check that `fmesh serve` is still running"


def send_to_router(
    method: str, url: str, token: str, *, timeout_s: float, body: Any = None
) -> http.client.HTTPResponse:
    """Sends a request and returns the response, whatever its status, before its body is read.

    Args:
        method: such as ``GET``.
        url: of the router, with the path.
        token: of a service.
        timeout_s: seconds in which nothing may come.
        body: sent as JSON; None for none.

    Raises:
        CliError: the router does not answer.
    """
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(
        parts.hostname or "127.0.0.1", parts.port, timeout=timeout_s
    )
    headers = {"Authorization": f"Bearer {token}", "Connection": "close"}
    if body is not None:
        headers["Content-Type"] = "application/json"
    try:
        connection.request(method, parts.path, None if body is None else json.dumps(body), headers)
        return connection.getresponse()
    except BROKEN as e:
        raise CliError(
            f"the router at {parts.netloc} does not answer: {e}",
            ExitCode.NO_FABRIC,
            remedy=_REMEDY,
        ) from e


def json_of(response: http.client.HTTPResponse) -> Any:
    """Returns the body of a response.

    Raises:
        CliError: it breaks off, or is not JSON.
    """
    try:
        return json.loads(response.read())
    except BROKEN as e:
        raise cut_short() from e
    except ValueError as e:
        raise _no_router() from e


def refusal_of(response: http.client.HTTPResponse) -> str:
    """Returns why a router refuses a request.

    Raises:
        CliError: as :func:`json_of`, or it is no router's answer.
    """
    try:
        return str(json_of(response)["error"]["message"])
    except (LookupError, TypeError) as e:
        raise _no_router() from e


def cut_short() -> CliError:
    """Returns the error of an answer that breaks off."""
    return CliError(
        "the answer was cut short", ExitCode.NO_FABRIC, remedy=f"{_REMEDY}, then ask again"
    )


def _no_router() -> CliError:
    return CliError(
        "the router's port answers, but not as a router does", ExitCode.NO_FABRIC, remedy=_REMEDY
    )
