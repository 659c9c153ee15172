"""Calls of services: what is changed of vLLM's answers."""

import json
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from openai.types.shared import ErrorObject

from flowmesh_core.openai.request import CHAT
from flowmesh_core.spec.service import ADAPTERS_MAX
from flowmesh_worker.engine_api import ServingAnswer, ServingCall
from flowmesh_worker.engines.llm.openai_serving import OpenAiAnswer, OpenAiCall, OpenAiServing
from flowmesh_worker.engines.llm.serving_calls import ServingCalls

REFUSED: dict[str, Any] = {  # as vLLM writes it
    "error": {
        "message": "max_tokens=999999 is too large",
        "type": "BadRequestError",
        "param": "max_tokens",
        "code": 400,
    }
}
EVENT = b"data: " + json.dumps(REFUSED).encode() + b"\n\n"
TEXT = b'data: {"choices":[{"delta":{"content":"a"}}]}\n\n'


class Refusing:
    """Refuses each call as vLLM does: a stream before its first event, or after it."""

    begins = False

    async def answer(self, call: OpenAiCall) -> OpenAiAnswer:
        return OpenAiAnswer(400, REFUSED)

    async def stream(self, call: OpenAiCall) -> AsyncIterator[bytes | OpenAiAnswer]:
        if not self.begins:
            yield OpenAiAnswer(400, REFUSED)
            return
        yield TEXT
        yield EVENT


@pytest.fixture
def refusing(monkeypatch: pytest.MonkeyPatch) -> Refusing:
    found = Refusing()

    async def create(*_: object) -> Refusing:
        return found

    monkeypatch.setattr(OpenAiServing, "create", create)
    return found


CALL = ServingCall("call-1", CHAT, "m", {})


def error_of(body: bytes) -> ErrorObject:
    """Reads an error as OpenAI's client declares it."""
    return ErrorObject.model_validate(json.loads(body)["error"], strict=True)


async def test_errors_of_vllm_have_no_number_as_their_code(refusing: Refusing) -> None:
    calls = ServingCalls(None, None, (CHAT,))
    answer = await calls.answer(CALL)
    assert answer.status == 400
    assert error_of(answer.body).code is None
    assert error_of(answer.body).param == "max_tokens"
    (streamed,) = [event async for event in calls.stream(CALL)]
    assert isinstance(streamed, ServingAnswer)
    assert (streamed.status, error_of(streamed.body).code) == (400, None)


async def test_an_error_that_ends_a_stream_has_no_number_as_its_code(refusing: Refusing) -> None:
    refusing.begins = True
    first, error, _ = [event async for event in ServingCalls(None, None, (CHAT,)).stream(CALL)]
    assert first == TEXT
    assert isinstance(error, bytes)
    assert error.endswith(b"\n\n")
    assert error_of(error.removeprefix(b"data: ")).message == "max_tokens=999999 is too large"


async def test_the_classes_of_services_that_share_an_engine_and_its_adapters_are_made_once(
    monkeypatch: pytest.MonkeyPatch, refusing: Refusing
) -> None:
    made = list[str]()

    async def create(_: object, model: str, *__: object) -> Refusing:
        made.append(model)
        return refusing

    monkeypatch.setattr(OpenAiServing, "create", create)
    calls = ServingCalls(None, None, (CHAT,))
    adapters = [f"a{n}" for n in range(ADAPTERS_MAX)]
    calls.adapters = dict.fromkeys(adapters)
    for _ in range(2):
        for service in ("one", "two", "three"):
            await calls.answer(replace(CALL, model=service))
            for name in adapters:
                model = f"{service}:{name}"
                await calls.answer(replace(CALL, model=model, adapter=name))
    assert len(made) == len(set(made)) == 3 * (1 + ADAPTERS_MAX)
