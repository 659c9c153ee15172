"""``fmesh call``: asks a served model one question and prints its answer as it comes."""

import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from flowmesh_cli.connection.state_dir import state_dir as state_of
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.local.router import Endpoint, endpoint
from flowmesh_cli.terminal import Terminal

_OK = 200
_DATA = b"data: "
_DONE = b"[DONE]"
_TIMEOUT_S = 600.0


def call(
    model: str,
    text: str,
    *,
    max_tokens: int,
    temperature: float | None,
    state_dir: Path | None,
    as_json: bool,
) -> None:
    """Sends one chat request.

    Raises:
        CliError: the model is not served here, or the request is refused.
    """
    terminal = Terminal(as_json=as_json)
    found = endpoint(state_of(state_dir))
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": text}],
        "max_tokens": max_tokens,
        "stream": not as_json,
    }
    if temperature is not None:
        body["temperature"] = temperature
    response = _post(found, chat_token(found, model), body)
    if as_json:
        terminal.answer(json.loads(response.read()))
        return
    for piece in _pieces(response):
        terminal.out.print(piece, end="", markup=False)
    terminal.text()


def chat_token(found: Endpoint, model: str) -> str:
    """Returns the token of a served model.

    Raises:
        CliError: it is not served, or is a service with stages, which takes no chats.
    """
    token = found.tokens.get(model)
    if token is None:
        raise CliError(
            f"{model!r} is not served from this folder: {', '.join(found.tokens)} is",
            ExitCode.NOT_FOUND,
            remedy=f"fmesh serve {model}",
        )
    if model in found.invoke:
        raise CliError(
            f"{model!r} is a service with stages, which takes JSON objects in place of chats",
            ExitCode.USAGE,
            remedy=f"POST its request fields to {found.invoke[model]}, as the line with curl that"
            " `fmesh serve` has printed",
        )
    return token


def _post(found: Endpoint, token: str, body: dict[str, Any]) -> http.client.HTTPResponse:
    parts = urlsplit(found.url)
    connection = http.client.HTTPConnection(
        parts.hostname or "127.0.0.1", parts.port, timeout=_TIMEOUT_S
    )
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    try:
        connection.request("POST", f"{parts.path}/chat/completions", json.dumps(body), headers)
        response = connection.getresponse()
    except OSError as e:
        raise CliError(
            f"the router at {found.url} does not answer: {e}",
            ExitCode.NO_FABRIC,
            remedy="see whether `fmesh serve` still runs",
        ) from e
    if response.status != _OK:
        error = json.loads(response.read())["error"]
        raise CliError(error["message"], ExitCode.REFUSED, where=f"HTTP {response.status}")
    return response


def _pieces(response: http.client.HTTPResponse) -> Iterator[str]:
    for line in response:
        if not line.startswith(_DATA):
            continue
        data = line.removeprefix(_DATA).strip()
        if data == _DONE:
            return
        event = json.loads(data)
        if "error" in event:
            raise CliError(event["error"]["message"], ExitCode.REFUSED)
        yield event["choices"][0]["delta"].get("content") or ""
