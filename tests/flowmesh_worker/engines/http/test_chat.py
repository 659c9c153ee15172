"""``http.chat`` against a local server with OpenAI's API."""

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from flowmesh_worker.engines.egress.addresses import REQUEST_ALLOW_VARIABLE
from flowmesh_worker.engines.http.chat import HttpChat

sys.path.insert(0, str(Path(__file__).parent))
from http_server import Seen, Site, rows_of, serving


def complete(seen: Seen) -> web.Response:
    asked = json.loads(seen.text)
    said = asked["messages"][-1]["content"]
    if said == "tools":
        return web.json_response({"choices": [{"message": {"content": None}}]})
    if said == "odd":
        return web.json_response(["no completion"])
    choice = {"message": {"role": "assistant", "content": said.upper()}, "finish_reason": "stop"}
    usage = {"prompt_tokens": 3, "completion_tokens": 2}
    return web.json_response({"choices": [choice], "usage": usage})


@pytest.fixture
async def site(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    monkeypatch.setenv(REQUEST_ALLOW_VARIABLE, "127.0.0.1/32")
    async with serving({"/v1/chat/completions": complete}) as one:
        yield one


async def chat(site: Site, rows: list[dict[str, Any]], **params: Any) -> list[dict[str, Any]]:
    given = {
        "endpoint": site.url + "/v1/",
        "model": "m",
        "messages": [{"role": "user", "content": "{{ q }}"}],
        **params,
    }
    return await rows_of(HttpChat(), "http.chat", rows, {"key": "tok-0123456789"}, **given)


async def test_each_row_gets_the_text_of_the_response(site: Site) -> None:
    found = await chat(site, [{"q": "a"}, {"q": "b"}], system="be brief", maxConcurrency=1)
    assert [(r["completion"], r["finish_reason"]) for r in found] == [("A", "stop"), ("B", "stop")]
    asked = json.loads(site.seen[0].text)
    assert asked == {
        "model": "m",
        "max_tokens": 256,
        "messages": [
            {"role": "system", "content": "be brief"},
            {"role": "user", "content": "a"},
        ],
    }


async def test_options_add_fields_to_the_request_and_remove_them(site: Site) -> None:
    options = {"max_tokens": None, "max_completion_tokens": 9, "stop": ["x"]}
    await chat(site, [{"q": "a"}], options=options, temperature=0.5, seed=3, secret="key")
    asked = json.loads(site.seen[0].text)
    assert {k: asked[k] for k in asked if k not in ("model", "messages")} == {
        "max_completion_tokens": 9, "stop": ["x"], "temperature": 0.5, "seed": 3,
    }  # fmt: skip
    assert site.seen[0].headers["Authorization"] == "Bearer tok-0123456789"


async def test_a_response_without_text_is_a_failed_call(site: Site) -> None:
    found = await chat(site, [{"q": "tools"}, {"q": "odd"}, {"q": "a"}], onError="record")
    assert [r["completion"] for r in found] == [None, None, "A"]
    assert all("not a chat completion" in r["http_error"] for r in found[:2])


async def test_chats_of_a_column_are_sent_with_their_calls_of_tools(site: Site) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    rows = [
        {"role": "user", "content": "1+2?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "3", "tool_call_id": "c", "name": None},
    ]
    more = {"messages": [{"role": "user", "content": "Rate it"}], "messagesFrom": "talk"}
    await chat(site, [{"talk": rows}], system="be brief", **more)
    asked = json.loads(site.seen[0].text)["messages"]
    assert asked == [
        {"role": "system", "content": "be brief"},
        *rows[:2],
        {"role": "tool", "content": "3", "tool_call_id": "c"},
        {"role": "user", "content": "Rate it"},
    ]
