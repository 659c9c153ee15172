"""The engine ``http.chat``: one chat completion of an OpenAI-compatible endpoint for each row."""

from collections.abc import Mapping
from typing import Any

import orjson

from flowmesh_core.dataset import ColumnType, Schema
from flowmesh_core.errors import FailureKind
from flowmesh_worker.engine_api import (
    Progress,
    Result,
    Rows,
    Usage,
    Work,
)
from flowmesh_worker.engines.egress.addresses import REQUEST_ALLOW_VARIABLE, AddressPolicy
from flowmesh_worker.engines.engine_base import EngineBase
from flowmesh_worker.engines.http.call import Call, CallError, HttpResponse
from flowmesh_worker.engines.http.client import HttpClient
from flowmesh_worker.engines.http.credentials import (
    KEY_HEADER,
    find_credential,
    written_origin,
)
from flowmesh_worker.engines.http.request_templates import (
    bounds,
    header_templates,
    rendered_headers,
)
from flowmesh_worker.engines.http.row_calls import ERROR, STATUS, RowCalls, idempotency_key
from flowmesh_worker.engines.prompts import Prompt

_CHAT = ("messages", "messagesFrom", "messagesFormat", "system")
_PATH = "/chat/completions"
_FINISH, _IN, _OUT = "finish_reason", "prompt_tokens", "completion_tokens"


class HttpChat(EngineBase):
    """The engine ``http.chat``; see :class:`flowmesh_worker.engine_api.Engine`."""

    capacity = 16

    def __init__(self) -> None:
        """Reads the allowed networks from the environment."""
        self._client = HttpClient(AddressPolicy.from_environment(REQUEST_ALLOW_VARIABLE))
        self._calls = RowCalls(self._client)

    async def run(self, work: Work, progress: Progress) -> Result:
        """Calls the endpoint once for each row."""
        given = work.dataset("rows")
        output = str(work.params["output"])
        rows = given.rows()
        calls = _calls(work, rows)
        blank = {output: None, _FINISH: None, STATUS: None, ERROR: None}
        cells = await self._calls.run(work, calls, _reader(output), blank, progress)
        tokens_in = sum(own.pop(_IN, 0) for own in cells)
        tokens_out = sum(own.pop(_OUT, 0) for own in cells)
        kinds = {
            **given.manifest.schema.types(),
            output: ColumnType.STRING,
            _FINISH: ColumnType.STRING,
            STATUS: ColumnType.INT,
            ERROR: ColumnType.STRING,
        }
        merged = [{**row, **own} for row, own in zip(rows, cells, strict=True)]
        return Result(
            {"rows": Rows(merged, Schema.of(kinds))},
            Usage(units=len(rows), tokens_in=tokens_in, tokens_out=tokens_out),
        )

    async def close(self) -> None:
        """Closes the connections."""
        await self._client.close()


def _calls(work: Work, rows: list[dict[str, Any]]) -> list[Call]:
    params = work.params
    endpoint = str(params["endpoint"]).rstrip("/")
    credential = find_credential(params, work.secrets)
    if credential is not None:
        written_origin(endpoint)
    prompt = Prompt({k: params.get(k) for k in _CHAT})
    headers = header_templates(params.get("headers") or {}, credential)
    calls = []
    for number, row in enumerate(rows, 1):
        messages = [m.as_dict() for m in prompt.render(row, number).messages]
        own = {
            "Content-Type": "application/json",
            **rendered_headers(headers, row, number),
            KEY_HEADER: idempotency_key(work.action_id, number),
        }
        body = orjson.dumps({**_body(params), "messages": messages})
        url = endpoint + _PATH
        calls.append(
            Call("POST", url, own, body, credential, repeatable=True, **bounds(params))
        )  # fmt: skip
    return calls


def _body(params: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the body without messages; a null in ``options`` removes a member."""
    body = {
        "model": params["model"],
        "max_tokens": params["maxTokens"],
        "temperature": params.get("temperature"),
        "seed": params.get("seed"),
        **(params.get("options") or {}),
    }
    return {name: value for name, value in body.items() if value is not None}


def _reader(output: str) -> Any:
    def read(answer: HttpResponse) -> dict[str, Any]:
        try:
            completion = orjson.loads(answer.text)
            choice = completion["choices"][0]
            text, reason = choice["message"]["content"], choice.get("finish_reason")
            usage = completion.get("usage") or {}
            counts = {name: int(usage.get(name) or 0) for name in (_IN, _OUT)}
        except (orjson.JSONDecodeError, LookupError, TypeError, ValueError, AttributeError):
            text = counts = None
        if not isinstance(text, str) or counts is None:
            raise CallError(
                FailureKind.BAD_INPUT,
                "the answer is not a chat completion with a text",
                "check that with.endpoint serves OpenAI's API (its URL usually ends in /v1)",
            )
        return {output: text, _FINISH: None if reason is None else str(reason), **counts}

    return read
