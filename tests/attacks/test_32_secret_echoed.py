"""Attacker: T6, a server that is sent a secret and repeats it.

Action: writes the secret into its text, its errors, its redirects and its headers.
Must not happen: the secret stands in a row, a failure or a log of the step.
"""

from typing import Any

import pytest
from aiohttp import web
from tests.flowmesh_worker.engines.http.http_server import Seen, rows_of, serving

from flowmesh_core.errors import AttemptError
from flowmesh_worker.engines.http.chat import HttpChat
from flowmesh_worker.engines.http.request import HttpRequest

SECRET = "the-secret-of-the-author"
HEADER = f"Bearer {SECRET}"


def chat(_: Seen) -> web.Response:
    message = {"role": "assistant", "content": f"you said {SECRET}"}
    return web.json_response({"choices": [{"message": message, "finish_reason": "stop"}]})


ECHOES: dict[str, Any] = {
    "/text": lambda s: web.Response(text=f"<{s.headers['Authorization']}>"),
    "/json": lambda s: web.json_response([s.headers, SECRET, {SECRET: SECRET}]),
    "/twice": lambda _: web.Response(text=f"{SECRET}{SECRET} {SECRET.upper()}"),
    "/404": lambda _: web.Response(status=404, text=f"no {SECRET} here"),
    "/500": lambda _: web.Response(status=500, text=SECRET),
    "/429": lambda _: web.Response(status=429, text=SECRET, headers={"Retry-After": "0"}),
    "/reason": lambda _: web.Response(status=418, reason=SECRET, text="x"),
    "/away": lambda _: web.Response(status=302, headers={"Location": f"/gone?key={SECRET}"}),
    "/gone": lambda _: web.Response(status=410, text="gone"),
    "/closed": lambda _: web.Response(status=302, headers={"Location": f"https://10.0.0.1/{SECRET}"}),
    "/bad-json": lambda _: web.Response(text=f"{{{SECRET}"),
    "/v1/chat/completions": chat,
}  # fmt: skip


@pytest.fixture(autouse=True)
def _opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOWMESH_HTTP_ALLOW", "127.0.0.1/32")


@pytest.mark.parametrize("parse", ["text", "json"])
@pytest.mark.parametrize("path", [p for p in ECHOES if p != "/v1/chat/completions"])
async def test_no_answer_shows_the_secret(
    path: str, parse: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(ECHOES) as site:
        params = {"url": site.url + path, "secret": "key", "parse": parse, "retries": 1}
        secrets = {"key": SECRET}
        rows = await rows_of(
            HttpRequest(), "http.request", [{"a": 1}], secrets, onError="record", **params
        )
        try:
            rows += await rows_of(HttpRequest(), "http.request", [{"a": 1}], secrets, **params)
        except AttemptError as error:
            rows.append({"failure": repr(error.failure), "text": str(error)})
        assert SECRET not in str(rows)
        assert SECRET not in caplog.text
        # The server itself was sent it.
        assert site.seen[0].headers["Authorization"] == HEADER


async def test_a_chat_shows_it_neither_and_is_answered() -> None:
    async with serving(ECHOES) as site:
        params = {"endpoint": f"{site.url}/v1", "model": "m", "retries": 0,
                  "messages": [{"role": "user", "content": "hello"}]}  # fmt: skip
        [row] = await rows_of(
            HttpChat(), "http.chat", [{"a": 1}], {"key": SECRET}, secret="key", **params
        )
        assert row["completion"] == "you said [secret]"
