"""Renders rows into calls: the templates of ``http.request`` and their restrictions."""

from collections.abc import Mapping
from typing import Any

import orjson

from flowmesh_core.catalog.builtin.http import REQUEST
from flowmesh_core.catalog.resolved_contract import repeatable
from flowmesh_worker.engines.egress.urls import origin
from flowmesh_worker.engines.errors import bad_input
from flowmesh_worker.engines.http.call import Call, Credential
from flowmesh_worker.engines.http.credentials import (
    KEY_HEADER,
    find_credential,
    require_settable,
    written_origin,
)
from flowmesh_worker.engines.http.row_calls import idempotency_key
from flowmesh_worker.engines.prompts import RowTemplate
from flowmesh_worker.secret_values import SecretValues

_BODYLESS = frozenset({"GET", "HEAD"})
_TEXT, _JSON = "text/plain; charset=utf-8", "application/json"


class RequestTemplates:
    """The templates of one action, compiled once."""

    def __init__(self, params: Mapping[str, Any], secrets: SecretValues) -> None:
        """Compiles the templates.

        Raises:
            AttemptError: kind ``bad-input``; a template is not valid, or parameters conflict.
        """
        self._params = params
        self._method = str(params["method"])
        self._repeatable = repeatable(REQUEST, params)
        self._credential = find_credential(params, secrets)
        self._origin = written_origin(str(params["url"])) if self._credential else ""
        self._url = RowTemplate(str(params["url"]), "url")
        self._headers = header_templates(params.get("headers") or {}, self._credential)
        self._body = self._body_template()

    def call(self, action_id: str, row: Mapping[str, Any], number: int) -> Call:
        """Returns the call of one row.

        Args:
            action_id: for the idempotency key.
            row: values by column.
            number: the row's number in this chunk, from 1.

        Raises:
            AttemptError: kind ``bad-input``; names the row.
        """
        url = self._url.render(row, number).strip()
        if self._origin and origin(url) != self._origin:
            raise bad_input(
                f"with.url of row {number} of this chunk leads to another host than"
                f" {self._origin}, with the secret"
            )
        headers = rendered_headers(self._headers, row, number)
        body = None if self._body is None else self._content(self._body, row, number)
        if body is not None and not any(name.lower() == "content-type" for name in headers):
            headers["Content-Type"] = _TEXT if self._params.get("json") is None else _JSON
        headers[KEY_HEADER] = idempotency_key(action_id, number)
        return Call(
            self._method, url, headers, body, self._credential,
            repeatable=self._repeatable, **bounds(self._params),
        )  # fmt: skip

    def _body_template(self) -> Any:
        text, value = self._params.get("body"), self._params.get("json")
        if text is not None and value is not None:
            raise bad_input("with has both body and json", "give only one of them")
        if text is None and value is None:
            return None
        if self._method in _BODYLESS:
            raise bad_input(f"a {self._method} has no content", "set with.method: POST")
        return compiled(value, "json") if text is None else RowTemplate(str(text), "body")

    def _content(self, template: Any, row: Mapping[str, Any], number: int) -> bytes:
        if self._params.get("json") is None:
            text: str = template.render(row, number)
            return text.encode()
        return orjson.dumps(filled(template, row, number))


def bounds(params: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the limits of a :class:`Call` from the engine's parameters."""
    return {
        "timeout_s": float(params["timeoutS"]),
        "max_bytes": int(params["maxBytes"]),
        "retries": int(params["retries"]),
    }


def header_templates(
    headers: Mapping[str, Any], credential: Credential | None
) -> dict[str, RowTemplate]:
    """Returns templates by header.

    Raises:
        AttemptError: kind ``bad-input``; the client sets one of the headers itself.
    """
    for name in headers:
        require_settable(name, "headers")
        if credential is not None and name.lower() == credential.header.lower():
            raise bad_input(f"with.headers sets {name}, and so does with.secret", "leave one out")
    return {name: RowTemplate(str(value), f"headers.{name}") for name, value in headers.items()}


def rendered_headers(
    templates: Mapping[str, RowTemplate], row: Mapping[str, Any], number: int
) -> dict[str, str]:
    """Returns the headers of one row.

    Raises:
        AttemptError: kind ``bad-input``; a value has line breaks or control characters.
    """
    headers = {name: t.render(row, number).strip() for name, t in templates.items()}
    for name, value in headers.items():
        if any((c < " " and c != "\t") or c == "\x7f" for c in value):
            raise bad_input(
                f"with.headers.{name} of row {number} of this chunk has control characters",
                "use one line of text",
            )
    return headers


def compiled(value: Any, where: str) -> Any:
    """Returns a JSON value with its strings compiled as templates."""
    if isinstance(value, str):
        return RowTemplate(value, where)
    if isinstance(value, Mapping):
        return {k: compiled(v, f"{where}.{k}") for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [compiled(v, f"{where}[{i}]") for i, v in enumerate(value)]
    return value


def filled(template: Any, row: Mapping[str, Any], number: int) -> Any:
    """Returns a compiled JSON value with its templates rendered."""
    if isinstance(template, RowTemplate):
        return template.render(row, number)
    if isinstance(template, dict):
        return {k: filled(v, row, number) for k, v in template.items()}
    if isinstance(template, list):
        return [filled(v, row, number) for v in template]
    return template
