"""Attacker: T5, rows that were made by others, in a workflow whose author sends a secret.

Action: names a host, a port, a user or a scheme in the part of the URL that a row fills.
Must not happen: any server but the one that the author wrote out gets the secret.
"""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from tests.flowmesh_worker.engines.http.http_server import Seen, Site, rows_of, serving

from flowmesh_core.errors import AttemptError, FailureKind
from flowmesh_worker.engines.http.chat import HttpChat
from flowmesh_worker.engines.http.request import HttpRequest

SECRET = "the-secret-of-the-author"
OPEN_HOSTS = (
    "{{ to }}", "{{ to }}/x", "http://{{ to }}", "http://{{ to }}/x", "https://{{ to }}/x",
    "http://api.example.com{{ to }}", "http://api.example.com:{{ to }}/x", "http://a@{{ to }}/",
    "http://{{ to }}@api.example.com/", "http:{{ to }}", "{{ to }}://api.example.com/",
    "http://api{{ to }}.example.com/", "http://{% if true %}{{ to }}{% endif %}/",
    "{% set u = to %}{{ u }}",
    "http://api.example.com\\{{ to }}", " {{ to }}", "//{{ to }}/",
)  # fmt: skip
ROWS = ("@127.0.0.1:{port}/", "127.0.0.1:{port}", "//127.0.0.1:{port}/", "http://127.0.0.1:{port}/",
        ".evil.example.com", "80@127.0.0.1:{port}")  # fmt: skip
# Written out by the author; the row fills a later part, and may not leave the host.
WRITTEN_OUT = ("{site}/{{{{ to }}}}", "{site}/a?q={{{{ to }}}}", "{site}/#{{{{ to }}}}")
CLIMBING = ("../../x", "//127.0.0.1:{port}/", "@127.0.0.1:{port}/", "\\127.0.0.1:{port}",
            "http://127.0.0.1:{port}/", "%2f@127.0.0.1:{port}",
            "?@127.0.0.1:{port}", ".")  # fmt: skip


def ok(_: Seen) -> web.Response:
    return web.Response(text="ok")


class AnyPath(dict[str, Any]):
    def __missing__(self, _: str) -> Any:
        return ok


@pytest.fixture
async def sites(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Site, Site]]:
    """The author's server and the attacker's."""
    monkeypatch.setenv("FLOWMESH_HTTP_ALLOW", "127.0.0.1/32")
    async with serving(AnyPath()) as author, serving(AnyPath()) as attacker:
        yield author, attacker


@pytest.mark.parametrize("url", OPEN_HOSTS)
async def test_a_host_that_a_row_may_write_gets_no_secret(
    url: str, sites: tuple[Site, Site]
) -> None:
    _, attacker = sites
    port = attacker.url.rpartition(":")[2]
    rows = [{"to": row.format(port=port)} for row in ROWS]
    with pytest.raises(AttemptError) as refused:
        await rows_of(HttpRequest(), "http.request", rows, {"key": SECRET}, url=url, secret="key",
                      retries=0)  # fmt: skip
    assert refused.value.failure.kind == FailureKind.BAD_INPUT
    assert attacker.seen == []


@pytest.mark.parametrize("url", WRITTEN_OUT)
@pytest.mark.parametrize("row", CLIMBING)
async def test_a_row_does_not_leave_the_host_that_is_written_out(
    url: str, row: str, sites: tuple[Site, Site]
) -> None:
    author, attacker = sites
    rows = [{"to": row.format(port=attacker.url.rpartition(":")[2])}]
    await rows_of(HttpRequest(), "http.request", rows, {"key": SECRET}, secret="key", retries=0,
                  url=url.format(site=author.url), onError="record")  # fmt: skip
    assert attacker.seen == []
    assert [s.headers["Authorization"] for s in author.seen] == [f"Bearer {SECRET}"]


async def test_without_a_secret_a_row_may_name_the_host(sites: tuple[Site, Site]) -> None:
    _, other = sites
    [row] = await rows_of(HttpRequest(), "http.request", [{"to": other.url}], url="{{ to }}/x")
    assert row["response"] == "ok"
    assert "Authorization" not in other.seen[0].headers


async def test_the_endpoint_of_a_chat_is_no_template(sites: tuple[Site, Site]) -> None:
    _, attacker = sites
    port = attacker.url.rpartition(":")[2]
    params = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "retries": 0}
    for endpoint in ("{{ to }}", "http://{{ to }}/v1"):
        with pytest.raises(AttemptError):
            await rows_of(HttpChat(), "http.chat", [{"to": f"127.0.0.1:{port}"}], {"key": SECRET},
                          secret="key", endpoint=endpoint, **params)  # fmt: skip
    assert attacker.seen == []
