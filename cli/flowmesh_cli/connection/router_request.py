"""One HTTP request to the router of ``fmesh serve``."""

import http.client
import json
from typing import Any
from urllib.parse import urlsplit

from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode


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
    except OSError as e:
        raise CliError(
            f"the router at {parts.netloc} does not answer: {e}",
            ExitCode.NO_FABRIC,
            remedy="check that `fmesh serve` is still running",
        ) from e
