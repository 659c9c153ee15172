"""Answers calls of services with the vLLM engine that also runs an instance's attempts.

A call's events and bodies are vLLM's own, by :class:`OpenAiServing`, but for the code of an error,
which is a number there and a text or null in OpenAI's API. The tokens of a stream are
read from the event with its usage, which vLLM sends last; a client that did not ask for that event
does not get it.
"""

import contextlib
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import msgspec

from flowmesh_core.decoding import decode
from flowmesh_core.openai.errors import without_number_as_code
from flowmesh_core.openai.request import CHAT, COMPLETIONS
from flowmesh_core.protocol.serving import TokenTargets
from flowmesh_worker.engine_api import CallRefusedError, ServingAnswer, ServingCall
from flowmesh_worker.engines.llm.embedding import EmbeddingBackend
from flowmesh_worker.engines.llm.grammar_limits import GrammarLimits
from flowmesh_worker.engines.llm.openai_serving import (
    ERROR_EVENT,
    OpenAiAnswer,
    OpenAiCall,
    OpenAiServing,
)
from flowmesh_worker.engines.llm.requests import Backend
from flowmesh_worker.engines.llm.sequence_places import SequencePlaces

_ERROR_EVENT = ERROR_EVENT.encode()
_NAMES_MAX = 64
"""Of several services that share the engine, each with its adapters."""
_DATA = b"data: "
_DONE = b"[DONE]"
_USAGE = b'"usage":{'
_OK = 200
_objects = msgspec.json.Decoder(dict)


class ServingCalls:
    """The calls of one engine instance.

    Attributes:
        paths: those of OpenAI's API that it answers.
        adapters: what makes vLLM apply each adapter that calls may choose, by name.
    """

    def __init__(
        self,
        engine: Any,
        grammars: GrammarLimits | None,
        paths: tuple[str, ...],
        places: SequencePlaces | None = None,
    ) -> None:
        """Wraps an engine.

        Args:
            engine: a running ``AsyncLLM``.
            grammars: bounds what compiling a request's grammar may take; None for an engine that
                embeds.
            paths: those of OpenAI's API that it answers.
            places: which of its sequences run; None for an engine that embeds.
        """
        self._engine = engine
        self._grammars = grammars
        self._places = places
        self.paths = paths
        self.adapters: Mapping[str, Any] = {}
        self._by_name: dict[tuple[str, str, str], OpenAiServing] = {}

    @classmethod
    def of_backend(
        cls,
        backend: Backend | EmbeddingBackend,
        paths: tuple[str, ...] = (CHAT, COMPLETIONS),
    ) -> "ServingCalls | None":
        """Returns the calls of a backend's engine; None where it has no ``AsyncLLM``."""
        engine = getattr(backend, "engine", None)
        if engine is None:
            return None
        grammars, places = getattr(backend, "grammars", None), getattr(backend, "places", None)
        return cls(engine, grammars, paths, places)

    @property
    def calls_max(self) -> int:
        """How many calls run at once: as many as sequences."""
        return int(self._engine.vllm_config.scheduler_config.max_num_seqs)

    def use_targets(self, targets: TokenTargets, changed: Callable[[int], None]) -> None:
        """See ``KeepsTokenTargets``."""
        assert self._places is not None, "an engine that embeds has no such targets"
        self._places.use_targets(targets, changed)

    async def answer(self, call: ServingCall) -> ServingAnswer:
        """Answers a call; see ``Serves``."""
        serving = await self._serving(call)
        answer = await serving.answer(_openai_call(call))
        usage = answer.body.get("usage") or {}
        return ServingAnswer(
            answer.status,
            msgspec.json.encode(without_number_as_code(answer.body)),
            int(usage.get("prompt_tokens") or 0),
            int(usage.get("completion_tokens") or 0),
        )

    async def stream(self, call: ServingCall) -> AsyncIterator[bytes | ServingAnswer]:
        """Answers a call as a stream; see ``Serves``."""
        serving = await self._serving(call)
        wants_usage = bool((call.body.get("stream_options") or {}).get("include_usage"))
        events = serving.stream(_openai_call(call, with_usage=True))
        end = ServingAnswer()
        async with contextlib.aclosing(events):  # type: ignore[type-var]
            async for event in events:
                if isinstance(event, OpenAiAnswer):
                    body = without_number_as_code(event.body)
                    yield ServingAnswer(event.status, msgspec.json.encode(body))
                    return
                usage = _usage(event)
                if usage is not None:
                    end = usage
                    if not wants_usage:
                        continue
                yield _error_event(event) if event.startswith(_ERROR_EVENT) else event
        yield end

    async def _serving(self, call: ServingCall) -> OpenAiServing:
        """Returns vLLM's classes that answer under the call's name of the model."""
        name = (call.model, call.tool_parser, call.adapter)
        found = self._by_name.get(name)
        if found is None:
            if call.adapter and call.adapter not in self.adapters:
                raise CallRefusedError(f"no adapter {call.adapter!r} is loaded")
            found = await OpenAiServing.create(
                self._engine,
                call.model,
                self._grammars,
                call.tool_parser or None,
                self._places,
                self.adapters.get(call.adapter),
            )
            if len(self._by_name) >= _NAMES_MAX:
                self._by_name.pop(next(iter(self._by_name)))
            self._by_name[name] = found
        return found


def _openai_call(call: ServingCall, *, with_usage: bool = False) -> OpenAiCall:
    body = {**call.body, "stream_options": {"include_usage": True}} if with_usage else call.body
    return OpenAiCall(call.path, body, call.call_id, call.cache_salt, call.priority, call.seed)


def _error_event(event: bytes) -> bytes:
    """Returns an event that ends a stream with vLLM's error, in OpenAI's shape."""
    body = without_number_as_code(decode(_objects, event.removeprefix(_DATA)))
    return _DATA + msgspec.json.encode(body) + b"\n\n"


def _usage(event: bytes) -> ServingAnswer | None:
    """Returns the tokens of a stream if the event is the one with its usage."""
    if _USAGE not in event or not event.startswith(_DATA):
        return None
    data = event.removeprefix(_DATA).strip()
    if data == _DONE:
        return None
    try:
        chunk = decode(_objects, data)
    except msgspec.DecodeError:
        return None
    if chunk.get("choices") != [] or not isinstance(chunk.get("usage"), dict):
        return None
    usage = chunk["usage"]
    return ServingAnswer(
        _OK,
        tokens_in=int(usage.get("prompt_tokens") or 0),
        tokens_out=int(usage.get("completion_tokens") or 0),
    )
