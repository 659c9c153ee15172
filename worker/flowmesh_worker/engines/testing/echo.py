"""The engine ``test.echo``: answers calls of services without a model, to test their path."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from flowmesh_core.catalog.adapter_ports import adapter_names
from flowmesh_core.openai.request import CHAT, COMPLETIONS
from flowmesh_core.protocol.serving import TokenTargets
from flowmesh_worker.engine_api import (
    CallRefusedError,
    HostSettings,
    Metrics,
    Progress,
    Result,
    ServingAnswer,
    ServingCall,
    TreeInput,
    Usage,
    Work,
)

_CALLS_MAX = 4
_REST_S = 0.05
_CALL_S = 0.01
"""By which each call that runs lengthens a step, if a target of time per token asks for it."""


class Echo:
    """The engine ``test.echo``; it repeats a prompt word by word.

    Attributes:
        open_calls: calls that have begun and not ended.
        adapters: names of its adapters, of which it loads nothing.
    """

    capacity = 256

    def __init__(self) -> None:
        self.open_calls = 0
        self.adapters: tuple[str, ...] = ()
        self._calls_max = _CALLS_MAX
        self._targets = TokenTargets()

    async def load(self, components: Mapping[str, TreeInput], settings: HostSettings) -> None:
        """Loads nothing; ``callsMax`` is how many calls it takes at once."""
        self.adapters = tuple(adapter_names(components))
        self._calls_max = int(settings.signature_params.get("callsMax", _CALLS_MAX))

    async def run(self, work: Work, progress: Progress) -> Result:
        """Returns ``value``."""
        return Result({"metrics": Metrics({"value": work.params.get("value")})}, Usage(units=1))

    async def close(self) -> None:
        """Frees nothing."""

    def serves(self) -> tuple[tuple[str, ...], int]:
        """See ``Serves``."""
        return (CHAT, COMPLETIONS), self._calls_max

    def use_targets(self, targets: TokenTargets, changed: Callable[[int], None]) -> None:
        """See ``KeepsTokenTargets``."""
        self._targets = targets
        within = round(targets.tpot_s / _CALL_S) if targets.tpot_s else self._calls_max
        changed(min(within, self._calls_max))

    async def answer(self, call: ServingCall) -> ServingAnswer:
        """Repeats the prompt. See ``Serves``."""
        words = [word async for word in self._words(call)]
        text = " ".join(words)
        body = {
            "id": call.call_id,
            "object": "chat.completion",
            "created": 0,
            "model": call.model,
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": text},
                    "text": text,
                    "finish_reason": "stop",
                }
            ],
            "usage": {
                "prompt_tokens": len(words),
                "completion_tokens": len(words),
                "total_tokens": 2 * len(words),
            },
            "seen": {
                "salt": call.cache_salt,
                "priority": call.priority,
                "seed": call.seed,
                "tool_parser": call.tool_parser,
                "adapter": call.adapter,
            },
            "open_calls": self.open_calls,
        }
        return ServingAnswer(200, json.dumps(body).encode(), len(words), len(words))

    async def stream(self, call: ServingCall) -> AsyncIterator[bytes | ServingAnswer]:
        """Repeats the prompt word by word. See ``Serves``."""
        count = 0
        async for word in self._words(call):
            count += 1
            delta = {"role": "assistant", "content": word}
            yield _event(call, {"index": 0, "delta": delta, "finish_reason": None})
        yield _event(call, {"index": 0, "delta": {}, "finish_reason": "stop"})
        yield b"data: [DONE]\n\n"
        yield ServingAnswer(tokens_in=count, tokens_out=count)

    async def _words(self, call: ServingCall) -> AsyncIterator[str]:
        """Yields the words of a prompt.

        ``wait`` never ends, ``rest`` takes 50 ms, ``flood`` has no end of words, and ``late``
        comes too late for any target.
        """
        self.open_calls += 1
        try:
            for word in _prompt(call.body).split():
                if word == "wait":
                    await asyncio.Event().wait()
                if word == "rest":
                    await asyncio.sleep(_REST_S)
                if word == "late" and self._targets.ttft_s:
                    raise CallRefusedError("its first token would be late")
                if word == "fail":
                    raise ValueError("the prompt says so")
                while word == "flood":
                    yield "x" * 1000
                    await asyncio.sleep(0)
                yield word
        finally:
            self.open_calls -= 1


def _prompt(body: Mapping[str, Any]) -> str:
    if "messages" in body:
        return str(body["messages"][-1]["content"])
    return str(body["prompt"])


def _event(call: ServingCall, choice: dict[str, Any]) -> bytes:
    chunk = {
        "id": call.call_id,
        "object": "chat.completion.chunk",
        "created": 0,
        "model": call.model,
        "choices": [choice],
    }
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"
