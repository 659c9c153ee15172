"""``fmesh call``: asks a served model one question and prints its answer as it comes.

A service with stages takes a JSON object in place of a question, and its reply is printed whole.
"""

import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flowmesh_cli.connection.router_request import (
    BROKEN,
    cut_short,
    json_of,
    refusal_of,
    send_to_router,
)
from flowmesh_cli.connection.state_dir import state_dir as state_of
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.local.router import Endpoint, endpoint
from flowmesh_cli.terminal import Terminal
from flowmesh_core.catalog.adapter_ports import split_model

_OK, _UNAVAILABLE = 200, 503
_WAITS = "`fmesh services list` shows what it waits for"
_DATA = b"data: "
_DONE = b"[DONE]"
_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class ServiceRequest:
    """A request to a served model, or to a service with stages.

    Attributes:
        url: where it is posted.
        token: that may call it.
        body: the JSON object.
        is_staged: whether it is for a service with stages, whose reply is one JSON object.
    """

    url: str
    token: str
    body: dict[str, Any]
    is_staged: bool


def call(
    model: str,
    text: str,
    *,
    max_tokens: int,
    temperature: float | None,
    state_dir: Path | None,
    as_json: bool,
) -> None:
    """Sends one request.

    Raises:
        CliError: the model is not served here, the text is not what it takes, or the request is
            refused.
    """
    terminal = Terminal(as_json=as_json)
    options: dict[str, Any] = {"max_tokens": max_tokens, "stream": not as_json}
    if temperature is not None:
        options["temperature"] = temperature
    request = request_of(endpoint(state_of(state_dir)), model, text, options)
    with _post(request) as response:
        if as_json or request.is_staged:
            terminal.answer(json_of(response))
        else:
            _print(terminal, response)


def _print(terminal: Terminal, response: http.client.HTTPResponse) -> None:
    """Prints an answer as it comes; what follows it, such as an error, begins on a new line."""
    has_begun = False
    try:
        for piece in _pieces(response):
            has_begun = has_begun or bool(piece)
            terminal.piece(piece)
    finally:
        if has_begun:
            terminal.text()


def request_of(found: Endpoint, model: str, text: str, options: dict[str, Any]) -> ServiceRequest:
    """Returns the request that asks a text.

    Args:
        found: where the models are served.
        model: its name.
        text: the question; for a service with stages a JSON object.
        options: further fields of a chat.

    Raises:
        CliError: it is not served, or is a service with stages and the text is not an object.
    """
    token = found.tokens.get(model) or found.tokens.get(split_model(model)[0])
    if token is None:
        raise CliError(
            f"{model!r} is not served from this folder, which serves {', '.join(found.tokens)}",
            ExitCode.NOT_FOUND,
            remedy=f"call one of these, or restart `fmesh serve` with {model!r} too",
        )
    if model in found.invoke:
        return ServiceRequest(found.invoke[model], token, _fields(model, text), is_staged=True)
    messages = [{"role": "user", "content": text}]
    body = {"model": model, "messages": messages, **options}
    return ServiceRequest(f"{found.url}/chat/completions", token, body, is_staged=False)


def _fields(model: str, text: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise CliError(
            f"{model!r} is a service with stages, which takes a JSON object: got {text[:40]!r}",
            ExitCode.USAGE,
            remedy='give its fields as the text, such as \'{"question": "Why?"}\'; the line with'
            " curl that `fmesh serve` has printed names them",
        )
    return found


def _post(request: ServiceRequest) -> http.client.HTTPResponse:
    response = send_to_router(
        "POST", request.url, request.token, timeout_s=_TIMEOUT_S, body=request.body
    )
    if response.status != _OK:
        raise CliError(
            refusal_of(response),
            ExitCode.REFUSED,
            where=f"HTTP {response.status}",
            remedy=_WAITS if response.status == _UNAVAILABLE else "",
        )
    return response


def _pieces(response: http.client.HTTPResponse) -> Iterator[str]:
    for line in _lines(response):
        if not line.startswith(_DATA):
            continue
        data = line.removeprefix(_DATA).strip()
        if data == _DONE:
            return
        event = json.loads(data)
        if "error" in event:
            raise CliError(event["error"]["message"], ExitCode.REFUSED)
        yield event["choices"][0]["delta"].get("content") or ""
    raise cut_short()


def _lines(response: http.client.HTTPResponse) -> Iterator[bytes]:
    try:
        yield from response
    except BROKEN as e:
        raise cut_short() from e
