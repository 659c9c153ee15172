"""Services with stages as chat models: OpenAI's client asks, one field of the reply answers."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import openai
import pytest
from tests.flowmesh_serving.hand_hub import HandHub, hand_hub
from tests.flowmesh_serving.raw_http import connected, request
from tests.flowmesh_serving.stack import TOKEN, Stack, router_of, says, until
from tests.flowmesh_serving.stage_stack import (
    SERVICE,
    URL,
    entry_of,
    python,
    service_of,
    stage_stack,
)

from flowmesh_core.protocol.router_services import ChatFields, ServiceToken, token_hash
from flowmesh_core.protocol.serving import (
    EndRequest,
    Piece,
    ReplicaLoad,
    RunStages,
    StageFailed,
    StageValue,
)

MODEL = "ask"
SPEC: dict[str, Any] = {
    "inputs": {"base": {"model": "smollm2-135m-instruct"}},
    "components": {
        "up": python("def up(batch):\n    return [c['q'].upper() for c in batch]", "up"),
        "writer": {"uses": "llm.generate", "inputs": {"model": "inputs.base"}},
    },
    "stages": [
        {"name": "loud", "component": "up", "inputs": {"q": "request.question"}},
        {
            "name": "answer",
            "component": "writer",
            "stream": True,
            "with": {"prompt": "{{ loud }}"},
        },
    ],
    "reply": {"text": "answer.completion", "loud": "loud"},
}
CHAT = ChatFields("question", "text")
REPLICAS = tuple(
    ReplicaLoad(f"{SERVICE}/{name}/r1/w", SERVICE, (), 8, component=name)
    for name in ("up", "writer")
)
CHUNK = b'data: {"choices": [{"text": "there", "finish_reason": "length"}]}\n\n'


@contextlib.asynccontextmanager
async def served(folder: Path, **entry: Any) -> AsyncIterator[tuple[Stack, HandHub]]:
    listed = (entry_of(service_of(SPEC), **{"chat": CHAT, **entry}),)
    async with (
        router_of(folder, listed) as stack,
        hand_hub(folder, *REPLICAS, worker="w") as hub,
    ):
        await until(lambda: stack.router._replicas.count(SERVICE) == len(REPLICAS))
        yield stack, hub


def asked(client: openai.AsyncOpenAI, text: str = "hi", **more: Any) -> "asyncio.Task[Any]":
    body = {"model": MODEL, "messages": says(text), **more}
    return asyncio.ensure_future(client.chat.completions.create(**body))


def reply(hub: HandHub, run: RunStages, text: Any = "there", reason: str = "stop") -> None:
    value = json.dumps({"completion": text, "finishReason": reason}).encode()
    hub.say(
        StageValue(run.request_id, 1, "reply", "answer", value),
        StageValue(run.request_id, 1, "reply", "loud", b'"HI"'),
    )


async def test_the_last_user_message_asks_and_one_field_answers(tmp_path: Path) -> None:
    messages = [
        {"role": "user", "content": "before"},
        {"role": "assistant", "content": "so"},
        {
            "role": "user",
            "content": [{"type": "text", "text": "why"}, {"type": "text", "text": "?"}],
        },
        {"role": "assistant", "content": "after"},
    ]
    async with served(tmp_path) as (stack, hub), stack.client as client:
        asking = asked(client, messages=messages)
        run = await hub._next(RunStages)
        assert json.loads(run.request) == {"question": "why\n?"}
        assert not run.stream
        reply(hub, run, reason="length")
        answer = await asking
        (choice,) = answer.choices
        assert (choice.message.role, choice.message.content) == ("assistant", "there")
        assert (choice.finish_reason, choice.index) == ("length", 0)
        assert (answer.object, answer.model) == ("chat.completion", MODEL)
        assert answer.id == f"chatcmpl-{run.request_id}"
        assert answer.usage is None, "the tokens of stages are not counted together"
        assert [m.id async for m in client.models.list()] == [MODEL]
        status = await client.get(
            f"/services/{SERVICE}/requests/{run.request_id}", cast_to=dict[str, Any]
        )
        assert (status["path"], status["outcome"]) == ("/v1/chat/completions", "ok")


async def test_the_answer_of_a_stage_that_streams_is_streamed(tmp_path: Path) -> None:
    async with served(tmp_path) as (stack, hub), stack.client as client:
        asking = asked(client, stream=True)
        run = await hub._next(RunStages)
        assert run.stream
        hub.say(Piece(run.request_id, CHUNK, 1), Piece(run.request_id, CHUNK, 1))
        stream = await asking
        assert stream.response.headers["X-Flowmesh-Request"] == run.request_id
        first = await anext(stream)
        hub.say(
            StageValue(run.request_id, 1, "reply", "answer", b""),
            StageValue(run.request_id, 1, "reply", "loud", b'"HI"'),
        )
        chunks = [first, *[chunk async for chunk in stream]]
    assert {(c.id, c.object, c.model) for c in chunks} == {
        (f"chatcmpl-{run.request_id}", "chat.completion.chunk", MODEL)
    }
    deltas = [c.choices[0].delta for c in chunks]
    assert [d.content for d in deltas] == ["there", "there", None]
    assert [d.role for d in deltas] == ["assistant", None, None]
    assert [c.choices[0].finish_reason for c in chunks] == [None, None, "length"]


async def test_a_stream_that_fails_ends_with_openais_error(tmp_path: Path) -> None:
    async with served(tmp_path) as (stack, hub), stack.client as client:
        asking = asked(client, stream=True)
        run = await hub._next(RunStages)
        hub.say(Piece(run.request_id, CHUNK, 1))
        hub.say(StageFailed(run.request_id, 1, "answer", "", "deadline"))
        with pytest.raises(openai.APIError, match="longer than its timeout"):
            async for _ in await asking:
                pass


REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "temperature": ({"temperature": 0}, "temperature", "unsupported_parameter"),
    "n": ({"n": 1}, "n", "unsupported_parameter"),
    "tools": (
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        "tools",
        "unsupported_parameter",
    ),
    "usage": (
        {"stream": True, "stream_options": {"include_usage": True}},
        "stream_options",
        "unsupported_parameter",
    ),
    "unknown": ({"extra_body": {"priority": 1}}, "priority", "unknown_parameter"),
    "no user": ({"messages": [{"role": "system", "content": "x"}]}, "messages", "invalid_value"),
    "no text": ({"messages": says("")}, "messages", "invalid_value"),
    "schema": ({"messages": says("longer than five")}, "question", "invalid_field"),
}


@pytest.mark.parametrize("name", REFUSED)
async def test_what_stages_do_not_do_is_refused_by_name(tmp_path: Path, name: str) -> None:
    more, param, code = REFUSED[name]
    schema = {"type": "object", "properties": {"question": {"type": "string", "maxLength": 5}}}
    async with served(tmp_path, request_schema=schema) as (stack, _), stack.client as client:
        with pytest.raises(openai.BadRequestError) as refused:
            await asked(client, **more)
        assert (refused.value.param, refused.value.code) == (param, code)
        assert stack.router._invoke._in_flight._by_tenant.all == 0


async def test_a_stream_is_refused_where_the_answer_is_not_streamed(tmp_path: Path) -> None:
    chat = ChatFields("question", "loud")
    async with served(tmp_path, chat=chat) as (stack, hub), stack.client as client:
        with pytest.raises(openai.BadRequestError, match="no stage of the service streams"):
            await asked(client, stream=True)
        asking = asked(client)
        reply(hub, await hub._next(RunStages))
        (choice,) = (await asking).choices
        assert (choice.message.content, choice.finish_reason) == ("HI", "stop")


async def test_an_answer_that_is_no_text_is_an_error(tmp_path: Path) -> None:
    async with served(tmp_path) as (stack, hub), stack.client as client:
        asking = asked(client)
        reply(hub, await hub._next(RunStages), text={"a": 1})
        with pytest.raises(openai.InternalServerError, match=r"reply\.text is not a string"):
            await asking


async def test_other_models_paths_and_services_are_404(tmp_path: Path) -> None:
    async with served(tmp_path) as (stack, _), stack.client as client:
        for asking in (
            client.chat.completions.create(model="other", messages=says("hi")),
            client.completions.create(model=MODEL, prompt="hi"),
            client.embeddings.create(model=MODEL, input="hi"),
        ):
            with pytest.raises(openai.NotFoundError):
                await asking
    folder = tmp_path / "without"
    folder.mkdir()
    async with served(folder, chat=None) as (stack, _), stack.client as client:
        with pytest.raises(openai.NotFoundError, match="has stages"):
            await asked(client)


async def test_a_chat_is_cancelled_by_its_id_and_sent_again_by_its_key(tmp_path: Path) -> None:
    key = {"extra_headers": {"Idempotency-Key": "k"}}
    async with served(tmp_path) as (stack, hub), stack.client as client:
        asking = asked(client)
        run = await hub._next(RunStages)
        url = f"/services/{SERVICE}/requests/{run.request_id}"
        await client.delete(url, cast_to=dict[str, Any])
        with pytest.raises(openai.APIStatusError, match="was cancelled"):
            await asking
        assert (await hub._next(EndRequest)).request_id == run.request_id
        first = asked(client, **key)
        reply(hub, await hub._next(RunStages))
        assert await first == await asked(client, **key)
        with pytest.raises(openai.UnprocessableEntityError):
            await asked(client, "other", **key)


async def test_both_ways_to_ask_go_on_beside_each_other(tmp_path: Path) -> None:
    async with served(tmp_path) as (stack, hub), stack.client as client, connected(stack) as peer:
        asking = asked(client)
        chat = await hub._next(RunStages)
        peer.send(request(b'{"question": "hi"}', path=URL))
        own = await hub._next(RunStages)
        assert json.loads(own.request) == json.loads(chat.request)
        for run in (own, chat):
            reply(hub, run)
        assert (await peer.answer()).body == {"text": "there", "loud": "HI"}
        assert (await asking).choices[0].message.content == "there"


async def test_a_model_with_stages_is_found_like_any_other(tmp_path: Path) -> None:
    tokens = (ServiceToken(token_hash(TOKEN), "team-a"),)
    async with served(tmp_path, tokens=tokens) as (stack, _):
        models = stack.router._services.models_of("team-a")
        assert models[MODEL].chat == CHAT


@pytest.mark.slow
async def test_a_real_hub_answers_chats(tmp_path: Path) -> None:
    async with (
        stage_stack(tmp_path, SPEC, {"w1": ["up", "writer"]}, chat=CHAT) as stages,
        stages.stack.client as client,
    ):
        answer = await asked(client, "why so")
        assert answer.choices[0].message.content == "WHY SO"
        texts = [
            chunk.choices[0].delta.content
            async for chunk in await asked(client, "a b", stream=True)
        ]
        assert "".join(filter(None, texts)) in ("A B", "AB")
