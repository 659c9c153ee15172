"""Requests from OpenAI's client through router and hub to an engine host, without a model."""

import asyncio
import time
from pathlib import Path
from typing import Any

import aiohttp
import openai
import pytest
from tests.flowmesh_serving.stack import (
    MODEL,
    SERVICE,
    TOKEN,
    Stack,
    ask,
    echo_stack,
    services,
    serving_stack,
    until,
)

from flowmesh_core.protocol.router_services import ServiceEntry, ServiceToken, token_hash
from flowmesh_serving.service_file import write_services


async def metrics_of(stack: Stack) -> str:
    async with (
        aiohttp.ClientSession() as session,
        session.get(f"{stack.router.url}/metrics") as response,
    ):
        return await response.text()


async def test_a_chat_is_answered_with_salt_and_priority_set_by_the_hub(tmp_path: Path) -> None:
    async with echo_stack(tmp_path) as stack, stack.client as client:
        answer = await ask(client, "one two")
        assert answer.choices[0].message.content == "one two"
        assert answer.usage.completion_tokens == 2
        assert (answer.model, answer.seen["salt"]) == (MODEL, "salt-a")
        assert answer.seen["priority"] > 1_000_000


async def test_a_stream_arrives_piece_by_piece(tmp_path: Path) -> None:
    async with echo_stack(tmp_path) as stack, stack.client as client:
        stream = await ask(client, "one two wait", stream=True)
        words = []
        async for chunk in stream:
            words.append(chunk.choices[0].delta.content)
            if len(words) == 2:  # the third word never comes
                break
        assert words == ["one", "two"]
        whole = [c.choices[0].delta.content async for c in await ask(client, "a b", stream=True)]
    assert whole == ["a", "b", None]


async def test_a_stream_of_many_times_its_credit_arrives_whole(tmp_path: Path) -> None:
    words = [f"word-{number}" for number in range(2_000)]  # events of 150 bytes: four credits
    async with echo_stack(tmp_path) as stack, stack.client as client:
        stream = await ask(client, " ".join(words), stream=True)
        chunks = [chunk.choices[0].delta.content async for chunk in stream]
        assert [chunk for chunk in chunks if chunk] == words


@pytest.mark.parametrize(
    ("more", "problem", "param"),
    [
        ({"extra_body": {"priority": 1}}, "Unknown parameter: 'priority'", "priority"),
        ({"extra_body": {"cache_salt": "x"}}, "Unknown parameter: 'cache_salt'", "cache_salt"),
        ({"n": 9}, "Expected a value <= 8", "n"),
        ({"temperature": "hot"}, "Invalid type for 'temperature'", "temperature"),
        ({"extra_headers": {"X-Request-Timeout": "-1"}}, "X-Request-Timeout", "X-Request-Timeout"),
    ],
)
async def test_a_wrong_parameter_is_refused_by_name(
    tmp_path: Path, more: dict[str, Any], problem: str, param: str
) -> None:
    async with echo_stack(tmp_path) as stack, stack.client as client:
        with pytest.raises(openai.BadRequestError, match=problem) as refused:
            await ask(client, "one", **more)
        assert refused.value.param == param


async def test_a_caller_sees_and_calls_the_model_of_its_token_only(tmp_path: Path) -> None:
    other = ServiceEntry("team-b/other", "other", (ServiceToken(token_hash("b"), "team-b"),))
    async with echo_stack(tmp_path, listed=(*services(), other)) as stack:
        async with stack.client_of("b") as client:
            assert [m.id async for m in client.models.list()] == ["other"]
            with pytest.raises(openai.NotFoundError, match="'echo' does not exist"):
                await ask(client, "one")
            with pytest.raises(openai.NotFoundError):
                await client.models.retrieve(MODEL)
        async with stack.client as client:
            assert [m.id async for m in client.models.list()] == [MODEL]
            assert (await ask(client, "one")).choices[0].message.content == "one"


async def test_a_token_that_is_unknown_expired_or_revoked_is_refused(tmp_path: Path) -> None:
    old = ServiceToken(token_hash("old"), "team-a", expires_s=time.time() - 1)
    listed = (ServiceEntry(SERVICE, MODEL, (*services()[0].tokens, old)),)
    async with echo_stack(tmp_path, listed=listed) as stack:
        for token in ("unknown", "old"):
            async with stack.client_of(token) as client:
                with pytest.raises(openai.AuthenticationError, match="Incorrect API key"):
                    await ask(client, "one")
        async with stack.client as client:
            await ask(client, "one")
            write_services(tmp_path / "services.json", ())
            with pytest.raises(openai.AuthenticationError):  # noqa: PT012 - it takes a moment
                async with asyncio.timeout(20):
                    while True:
                        await ask(client, "one")


async def test_a_path_that_the_engine_does_not_answer_is_404(tmp_path: Path) -> None:
    async with echo_stack(tmp_path) as stack, stack.client as client:
        with pytest.raises(
            openai.NotFoundError, match="does not answer /v1/embeddings: it answers /v1/chat"
        ) as refused:
            await client.embeddings.create(model=MODEL, input="one")
        assert "`fmesh serve MODEL --embeddings`" in refused.value.message
        assert "`uses: llm.embed`" in refused.value.message, "as a FlowMeshService says it"


async def test_tools_need_a_tool_parser(tmp_path: Path) -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    async with echo_stack(tmp_path) as stack, stack.client as client:
        for choice in ({}, {"tool_choice": "auto"}, {"tool_choice": "required"}):
            with pytest.raises(openai.BadRequestError, match="--tool-parser NAME") as refused:
                await ask(client, "one", tools=tools, **choice)
            assert "a FlowMeshService has no such field" in refused.value.message
            assert (refused.value.param, refused.value.code) == ("tool_choice", "no_tool_parser")
        await ask(client, "one", tools=tools, tool_choice="none")
    parsed = tmp_path / "parsed"
    parsed.mkdir()
    async with (
        echo_stack(parsed, listed=services(tool_parser="hermes")) as stack,
        stack.client as client,
    ):
        assert (await ask(client, "one", tools=tools)).seen["tool_parser"] == "hermes"


async def test_without_a_replica_a_request_is_503_with_retry_after(tmp_path: Path) -> None:
    async with serving_stack(tmp_path, replica_wait_s=0.05) as stack, stack.client as client:
        with pytest.raises(openai.InternalServerError, match="No replica") as refused:
            await ask(client, "one")
        assert refused.value.response.headers["Retry-After"] == "5"
        text = await metrics_of(stack)
    assert f'flowmesh_service_requests_total{{outcome="refused",service="{SERVICE}"}} 1.0' in text
    assert 'flowmesh_service_refused_total{why="no_replica"} 1.0' in text


async def test_a_call_that_failed_is_no_refusal(tmp_path: Path) -> None:
    async with echo_stack(tmp_path) as stack, stack.client as client:
        with pytest.raises(openai.APIStatusError, match="timeout"):
            await ask(client, "wait", extra_headers={"X-Request-Timeout": "0.05"})
        text = await metrics_of(stack)
    assert f'flowmesh_service_requests_total{{outcome="failed",service="{SERVICE}"}} 1.0' in text
    assert "flowmesh_service_refused_total{" not in text


async def test_a_failure_of_the_engine_is_500_and_does_not_show_its_words(tmp_path: Path) -> None:
    async with echo_stack(tmp_path) as stack, stack.client as client:
        with pytest.raises(openai.InternalServerError, match="failed on the request") as failed:
            await ask(client, "fail")
        assert "prompt says so" not in str(failed.value)
        assert (await ask(client, "one")).choices[0].message.content == "one"


async def test_equal_idempotency_keys_give_equal_seeds(tmp_path: Path) -> None:
    async with echo_stack(tmp_path) as stack, stack.client as client:

        async def seed(key: str = "") -> int:
            headers = {"Idempotency-Key": key} if key else {}
            found: int = (await ask(client, "one", extra_headers=headers)).seen["seed"]
            return found

        assert await seed("k") == await seed("k")
        assert len({await seed("k"), await seed("l"), await seed(), await seed()}) == 4


async def test_bodies_that_are_too_large_or_not_json_are_refused(tmp_path: Path) -> None:
    async with echo_stack(tmp_path, body_bytes_max=1000) as stack:
        url = f"{stack.router.url}/v1/chat/completions"
        headers = {"Authorization": f"Bearer {TOKEN}"}

        async def chunks() -> Any:
            for _ in range(100):
                yield b" " * 100

        async with aiohttp.ClientSession(headers=headers) as session:
            for data, status in ((b"{", 400), (b"[]", 400), (b" " * 2000, 413), (chunks(), 413)):
                async with session.post(url, data=data) as response:
                    error = (await response.json())["error"]
                    assert (response.status, error["type"]) == (status, "invalid_request_error")


async def test_unknown_urls_and_methods_have_openais_error_object(tmp_path: Path) -> None:
    async with serving_stack(tmp_path) as stack, aiohttp.ClientSession() as session:
        async with session.get(f"{stack.router.url}/v1/nothing") as response:
            assert (response.status, (await response.json())["error"]["code"]) == (
                404,
                "unknown_url",
            )
        async with session.get(f"{stack.router.url}/v1/completions") as response:
            assert response.status == 405


async def test_the_router_counts_requests_and_tokens_by_service(tmp_path: Path) -> None:
    async with echo_stack(tmp_path) as stack, stack.client as client:
        await ask(client, "one two three")
        with pytest.raises(openai.BadRequestError):
            await ask(client, "one", n=9)
        text = await metrics_of(stack)
    name = f'service="{SERVICE}"'
    assert f'flowmesh_service_requests_total{{outcome="ok",{name}}} 1.0' in text
    assert f'flowmesh_service_tokens_total{{direction="out",{name}}} 3.0' in text
    assert 'flowmesh_service_refused_total{why="integer_above_max_value"} 1.0' in text


def value_of(
    text: str, name: str, labels: str = f'{{component="llm",service="{SERVICE}"}}'
) -> float:
    """Returns the value of a metric; 0 where there is none."""
    lines = (line.rpartition(" ") for line in text.splitlines())
    return next((float(v) for n, _, v in lines if n == f"flowmesh_service_{name}{labels}"), 0.0)


async def test_the_router_shows_how_long_calls_wait_and_run(tmp_path: Path) -> None:
    async with echo_stack(tmp_path, calls_max=2) as stack, stack.client as client:
        await asyncio.gather(*(ask(client, "rest") for _ in range(3)))
        async with asyncio.timeout(30):
            while value_of(text := await metrics_of(stack), "queue_seconds_count") < 3:
                pass
    assert value_of(text, "compute_seconds_count") == value_of(text, "batch_size_count") == 3
    assert value_of(text, "batch_size_sum") in (1 + 2 + 2, 1 + 2 + 1)
    assert value_of(text, "compute_seconds_sum") >= 3 * 0.05
    assert value_of(text, "queue_seconds_sum") >= 0.04  # the third waits for one of the others
    assert value_of(text, "batch_cap") == 2
    assert value_of(text, "route_seconds_count", "") >= 3


async def test_the_time_of_a_token_is_that_of_a_stream_after_its_first_event(
    tmp_path: Path,
) -> None:
    label = f'{{service="{SERVICE}"}}'
    async with echo_stack(tmp_path) as stack, stack.client as client:
        for text in ("one", "rest one", "one rest rest", "one rest"):
            async for _ in await ask(client, text, stream=True):
                pass
        await ask(client, "one rest")
        text = await metrics_of(stack)
        assert value_of(text, "tpot_seconds_count", label) == 3  # not that of one token
        spent_s = value_of(text, "tpot_seconds_sum", label)
        assert spent_s >= 2 * 0.05
        async for _ in await ask(client, "one rest", stream=True, n=2):  # each answer has one token
            pass
        text = await metrics_of(stack)
    assert value_of(text, "tpot_seconds_count", label) == 3


async def test_the_hub_reports_calls_and_tokens_of_a_replica(tmp_path: Path) -> None:
    async with echo_stack(tmp_path) as stack, stack.client as client:
        await ask(client, "one two three")
        await until(lambda: any((u.tokens, u.calls) == (6, 0) for u in stack.usage))


async def test_completions_are_answered_too(tmp_path: Path) -> None:
    async with echo_stack(tmp_path) as stack, stack.client as client:
        answer = await client.completions.create(model=MODEL, prompt="one two")
        assert answer.choices[0].text == "one two"
