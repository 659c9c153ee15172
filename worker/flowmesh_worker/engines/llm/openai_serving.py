"""Answers OpenAI's requests with vLLM's own serving classes on a running engine.

Chat templates, tool calls, log-probabilities, usage and streamed events are vLLM's; this is the
only module that knows these classes of vLLM 0.27. Used by ``llm.openai``, and by serving replicas.

The engine is shared with other runs. So salt, priority and request id come from the caller, never
from the body, and each request has a seed: on a CPU one request without a generator makes vLLM
ignore the generators of its whole batch. A greedy request has none, so it is written as sampling
with ``top_k=1``, as :meth:`Sampling.from_params` does.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

from flowmesh_core.errors import AttemptError
from flowmesh_core.openai.errors import OpenAiError
from flowmesh_core.openai.request import CHAT, COMPLETIONS, EMBEDDINGS
from flowmesh_worker.engine_api import CallRefusedError
from flowmesh_worker.engines.errors import host_crashed
from flowmesh_worker.engines.llm.grammar_limits import GrammarLimits
from flowmesh_worker.engines.llm.sequence_places import SequencePlaces

_SEEDS = 2**62
"""Seeds are taken modulo this, since vLLM adds the number of a choice to them, and takes -1 as no
seed."""
_GREEDY_BELOW = 1e-5
ERROR_EVENT = 'data: {"error":'
_OK = 200
_NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class OpenAiCall:
    """One request to an engine.

    Attributes:
        path: such as ``/v1/chat/completions``.
        body: checked by ``flowmesh_core.openai.request.check_request``.
        request_id: unique in the engine instance; part of the response's id.
        cache_salt: requests share cached prefixes only if this is equal; empty for none.
        priority: higher first.
        seed: used where the body has none.
    """

    path: str
    body: Mapping[str, Any]
    request_id: str
    cache_salt: str = ""
    priority: int = 0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class OpenAiAnswer:
    """A response: an HTTP status code and a JSON body, which is an error's where it is not 200."""

    status: int
    body: dict[str, Any]


class OpenAiServing:
    """vLLM's serving classes on one engine; created by :meth:`create`."""

    def __init__(self, engine: Any, handlers: Mapping[str, tuple[Any, Any]]) -> None:
        """Wraps the classes.

        Args:
            engine: a running ``AsyncLLM``.
            handlers: by path, the class of its requests and the function that answers one.
        """
        self._engine = engine
        self._handlers = handlers

    @classmethod
    async def create(
        cls,
        engine: Any,
        model_name: str,
        grammars: GrammarLimits | None,
        tool_parser: str | None = None,
        places: SequencePlaces | None = None,
        adapter: Any = None,
    ) -> "OpenAiServing":
        """Builds the classes for what the engine supports: generation or embeddings.

        Args:
            engine: a running ``AsyncLLM``.
            model_name: the model's name in responses.
            grammars: bounds what compiling a request's grammar may take; None for an engine that
                embeds.
            tool_parser: vLLM's parser of the model's tool calls; None for a model without.
            places: where requests of services get a place in the engine; None for attempts.
            adapter: the ``LoRARequest`` of all requests; None for the model alone.
        """
        tasks = await engine.get_supported_tasks()
        if "generate" in tasks:
            assert grammars is not None, "an engine that generates compiles grammars"
            checked = _CheckedEngine(engine, grammars, places, adapter)
            return cls(engine, _generation_handlers(checked, model_name, tool_parser))
        return cls(engine, _embedding_handlers(engine, model_name) if "embed" in tasks else {})

    async def answer(self, call: OpenAiCall) -> OpenAiAnswer:
        """Answers one request; cancelling stops it.

        Returns:
            The response; an error that concerns this request only is a response too.

        Raises:
            AttemptError: of kind host-crashed; the engine has ended.
        """
        try:
            result = await self._begin(call, stream=False)
        except OpenAiError as e:
            return OpenAiAnswer(e.status, e.body())
        _raise_if_cancelled()
        return _plain_answer(result)

    async def stream(self, call: OpenAiCall) -> AsyncIterator[bytes | OpenAiAnswer]:
        """Answers one request as server-sent events, as vLLM writes them; closing stops it.

        Yields:
            Events; or one answer alone, an error's, where the request is refused before the first.

        Raises:
            AttemptError: of kind host-crashed; the engine has ended.
        """
        try:
            events = await self._begin(call, stream=True)
        except OpenAiError as e:
            yield OpenAiAnswer(e.status, e.body())
            return
        if not hasattr(events, "__aiter__"):
            yield _plain_answer(events)
            return
        async with contextlib.aclosing(events):
            first = True
            async for event in events:
                if first and event.startswith(ERROR_EVENT):
                    yield _error_answer(event)
                    return
                first = False
                yield event.encode()

    async def _begin(self, call: OpenAiCall, *, stream: bool) -> Any:
        from vllm.entrypoints.serve.utils.error_response import (  # noqa: PLC0415 - brings vLLM
            create_error_response,
        )
        from vllm.v1.engine.exceptions import EngineDeadError  # noqa: PLC0415 - as above

        request_class, handler = self._handler(call.path)
        if stream and call.path == EMBEDDINGS:
            raise OpenAiError("Embeddings cannot be streamed.", param="stream")
        fields = _request_fields(call, stream=stream)
        try:
            return await handler(request_class(**fields))
        except (AttemptError, CallRefusedError):
            raise
        except EngineDeadError as e:
            raise host_crashed("vLLM's engine core has ended", e) from e
        except Exception as e:  # vLLM's own server turns all others into responses, too
            return create_error_response(_first_problem(e))

    def _handler(self, path: str) -> tuple[Any, Any]:
        found = self._handlers.get(path)
        if found is None:
            raise OpenAiError(
                f"This model does not support {path}; it supports"
                f" {', '.join(self._handlers) or 'none of the endpoints'}.",
                param="model",
                status=_NOT_FOUND,
            )
        return found


class _CheckedEngine:
    """An engine whose requests all have a generator, grammars within limits, a place, an adapter.

    Whether there is an adapter, and which, is decided here: vLLM's classes know none.
    """

    def __init__(
        self,
        engine: Any,
        grammars: GrammarLimits,
        places: SequencePlaces | None,
        adapter: Any,
    ) -> None:
        self._engine = engine
        self._grammars = grammars
        self._places = places
        self._adapter = adapter

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def generate(self, prompt: Any, params: Any, request_id: str, **more: Any) -> Any:
        more["lora_request"] = self._adapter
        if self._places is None and params.structured_outputs is None:
            return self._engine.generate(prompt, with_generator(params), request_id, **more)
        tokens = len(prompt.get("prompt_token_ids") or ()) if isinstance(prompt, Mapping) else 0
        if self._places is not None:
            self._places.require_in_time(tokens)
        return self._in_place(prompt, tokens, params, request_id, more)

    async def _in_place(
        self, prompt: Any, tokens: int, params: Any, request_id: str, more: dict[str, Any]
    ) -> AsyncIterator[Any]:
        if params.structured_outputs is not None:
            tenant = prompt.get("cache_salt") if isinstance(prompt, Mapping) else None
            await self._grammars.require(params.structured_outputs, tenant or "")
        place: contextlib.AbstractAsyncContextManager[None] = contextlib.nullcontext()
        if self._places is not None:
            place = self._places.of_call(request_id, tokens, params.n)
        async with place:
            outputs = self._engine.generate(prompt, with_generator(params), request_id, **more)
            async with contextlib.aclosing(outputs):
                async for output in outputs:
                    yield output


def with_generator(params: Any) -> Any:
    """Returns finished ``SamplingParams`` such that vLLM creates a generator for the request.

    Raises:
        RuntimeError: they have no seed, so they would spoil the seeds of other requests.
    """
    import msgspec  # noqa: PLC0415 - used here alone

    if params.seed is None:
        raise RuntimeError("a request without a seed must not enter a shared engine")
    if params.temperature >= _GREEDY_BELOW:
        return params
    return msgspec.structs.replace(params, temperature=1.0, top_k=1, top_p=1.0, min_p=0.0)


def _generation_handlers(
    engine: Any, model_name: str, tool_parser: str | None
) -> dict[str, tuple[Any, Any]]:
    from vllm.entrypoints.openai.chat_completion.protocol import (  # noqa: PLC0415 - brings vLLM
        ChatCompletionRequest,
    )
    from vllm.entrypoints.openai.chat_completion.serving import (  # noqa: PLC0415 - as above
        OpenAIServingChat,
    )
    from vllm.entrypoints.openai.completion.protocol import (  # noqa: PLC0415 - as above
        CompletionRequest,
    )
    from vllm.entrypoints.openai.completion.serving import (  # noqa: PLC0415 - as above
        OpenAIServingCompletion,
    )
    from vllm.renderers.online_renderer import OnlineRenderer  # noqa: PLC0415 - as above

    models = _models(engine, model_name)
    chat = {
        "request_logger": None,
        "chat_template": None,
        "chat_template_content_format": "auto",
        "trust_request_chat_template": False,
        "enable_auto_tools": tool_parser is not None,
        "tool_parser": tool_parser,
    }
    renderer = OnlineRenderer(engine.model_config, engine.renderer, **chat)
    chats = OpenAIServingChat(engine, models, "assistant", online_renderer=renderer, **chat)
    completions = OpenAIServingCompletion(
        engine, models, online_renderer=renderer, request_logger=None
    )
    return {
        CHAT: (ChatCompletionRequest, chats.create_chat_completion),
        COMPLETIONS: (CompletionRequest, completions.create_completion),
    }


def _embedding_handlers(engine: Any, model_name: str) -> dict[str, tuple[Any, Any]]:
    from vllm.entrypoints.chat_utils import ChatTemplateConfig  # noqa: PLC0415 - brings vLLM
    from vllm.entrypoints.pooling.embed.protocol import (  # noqa: PLC0415 - as above
        EmbeddingCompletionRequest,
    )
    from vllm.entrypoints.pooling.embed.serving import (  # noqa: PLC0415 - as above
        ServingEmbedding,
    )

    serving = ServingEmbedding(
        engine,
        _models(engine, model_name),
        request_logger=None,
        chat_template_config=ChatTemplateConfig(),
    )
    return {EMBEDDINGS: (EmbeddingCompletionRequest, serving)}


def _models(engine: Any, model_name: str) -> Any:
    from vllm.entrypoints.openai.models.protocol import (  # noqa: PLC0415 - brings vLLM
        BaseModelPath,
    )
    from vllm.entrypoints.openai.models.serving import (  # noqa: PLC0415 - as above
        OpenAIServingModels,
    )

    path = BaseModelPath(name=model_name, model_path=engine.model_config.model)
    return OpenAIServingModels(engine, [path])


def _request_fields(call: OpenAiCall, *, stream: bool) -> dict[str, Any]:
    """Returns the fields of vLLM's request; the model's name is the caller's matter."""
    fields = {k: v for k, v in call.body.items() if k not in ("model", "stream")}
    fields |= {
        "cache_salt": call.cache_salt or None,
        "priority": -call.priority,  # vLLM serves the smallest number first
        "request_id": call.request_id,
    }
    if call.path == EMBEDDINGS:
        return fields
    return {**fields, "stream": stream, "seed": int(fields.get("seed", call.seed)) % _SEEDS}


def _plain_answer(result: Any) -> OpenAiAnswer:
    """Converts a response of vLLM: a model of pydantic, or Starlette's JSON response."""
    if hasattr(result, "body"):
        return OpenAiAnswer(result.status_code, json.loads(result.body))
    body = result.model_dump(mode="json")
    return OpenAiAnswer(int(body["error"]["code"]) if "error" in body else _OK, body)


def _error_answer(event: str) -> OpenAiAnswer:
    """Converts the event of a stream that is refused before it begins."""
    body = json.loads(event.removeprefix("data: "))
    return OpenAiAnswer(int(body["error"]["code"]), body)


def _first_problem(error: Exception) -> Exception:
    """Returns the first problem of a request as one sentence, where pydantic lists all."""
    problems = getattr(error, "errors", None)
    if not callable(problems):
        return error
    first = problems()[0]
    place = ".".join(str(part) for part in first["loc"])
    return ValueError(f"{place}: {first['msg']}" if place else first["msg"])


def _raise_if_cancelled() -> None:
    """Cancels again what vLLM turned into the response "Client disconnected"."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError
