"""The engine ``llm.agent``: each row becomes a conversation, each turn a request.

``run`` is called for many actions at once. Each conversation is a task whose next turn is sent as
soon as its tools are done; the backend batches the requests of all actions. A row that cannot be
rendered or is too long fails its action before any request is sent, as in ``llm.generate``; a later
problem ends only that row's conversation, with a reason.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from flowmesh_core.dataset.schema import ColumnType, Schema
from flowmesh_core.protocol.messages import EngineVariant
from flowmesh_worker.engine_api import (
    DatasetInput,
    HostSettings,
    Progress,
    Result,
    Rows,
    TreeInput,
    Usage,
    Work,
)
from flowmesh_worker.engines.agent.conversation import CONTEXT, Conversation
from flowmesh_worker.engines.agent.protocols import (
    CallProtocol,
    ConstrainedCalls,
    PromptedCalls,
    TemplateCalls,
)
from flowmesh_worker.engines.agent.tool_factory import ToolFactory
from flowmesh_worker.engines.agent.tools.tool import CallSite
from flowmesh_worker.engines.agent.tools.toolbox import Toolbox
from flowmesh_worker.engines.errors import bad_input
from flowmesh_worker.engines.llm.adapters import ADAPTER
from flowmesh_worker.engines.llm.backends import start_backend, supported_variants
from flowmesh_worker.engines.llm.requests import Backend, Request, Sampling, sample_seed
from flowmesh_worker.engines.llm.sleeping import SleepsWithBackend
from flowmesh_worker.engines.models.model_facts import read_facts
from flowmesh_worker.engines.preload import HostPreload, preload_of_implementation
from flowmesh_worker.engines.prompts import Prompt
from flowmesh_worker.engines.row_gather import all_or_none
from flowmesh_worker.engines.tokens import Tokenizing

_CAPACITY = 64


class LlmAgent(SleepsWithBackend):
    """The engine ``llm.agent``; see :class:`flowmesh_worker.engine_api.Engine`."""

    def __init__(self) -> None:
        self.capacity = _CAPACITY
        self._backend: Backend | None = None
        self._tokenizing: Tokenizing | None = None
        self._tools: ToolFactory | None = None
        self._can_constrain = True

    @staticmethod
    def variants(device_class: str) -> list[EngineVariant]:
        """Returns the variants that this installation serves on devices of a class."""
        return supported_variants("llm.agent", device_class)

    @staticmethod
    def prepares(params: Mapping[str, Any], *, on_devices: bool) -> HostPreload | None:
        """Returns what a standby host of this engine imports."""
        return preload_of_implementation(params, on_devices=on_devices)

    async def load(self, components: Mapping[str, TreeInput], settings: HostSettings) -> None:
        """Loads the model with the signature's implementation."""
        facts = await asyncio.to_thread(read_facts, components["model"].path)
        backend = await start_backend(facts, settings)
        self._backend = backend
        self._tokenizing = Tokenizing(backend.tokenizer, backend.context_length)
        self._tools = ToolFactory(settings.scratch)
        self._can_constrain = settings.signature_params.get("implementation", "vllm") == "vllm"

    async def run(self, work: Work, progress: Progress) -> Result:
        """Runs the conversations of all rows of one action."""
        if self._backend is None or self._tokenizing is None or self._tools is None:
            raise RuntimeError("llm.agent was given work before it was loaded")
        if work.params.get("toolParser") and not self._can_constrain:
            raise bad_input(
                "toolParser needs vLLM, whose parsers it names",
                "remove with.implementation, or toolParser",
            )
        if work.params["toolChoice"] == "required" and not self._can_constrain:
            raise bad_input(
                "toolChoice: required needs vLLM: transformers does not constrain completions",
                "remove with.implementation, or set toolChoice: auto",
            )
        toolbox = await self._tools.toolbox(work)
        source = work.dataset("rows")
        keys, conversations = await asyncio.to_thread(
            _prepare, work, source, self._tokenizing, toolbox, self._backend.tokenizer
        )
        run = _Run(work, self._backend, self._tokenizing, toolbox, progress, len(conversations))
        await all_or_none(run.one(number, c) for number, c in enumerate(conversations.values()))
        rows = [
            _row(work.params, row, conversations[key])
            for row, key in zip(source.rows(), keys, strict=True)
        ]
        usage = Usage(run.tokens_in + run.tokens_out, run.tokens_in, run.tokens_out)
        return Result({"rows": Rows(rows, _schema(work.params, source))}, usage)

    async def close(self) -> None:
        """Frees the model and closes the tools' connections."""
        if self._tools is not None:
            await self._tools.close()
        if self._backend is not None:
            await self._backend.close()
            self._backend = None


@dataclass(slots=True)
class _Run:
    """The conversations of one action while they run."""

    work: Work
    backend: Backend
    tokenizing: Tokenizing
    toolbox: Toolbox
    progress: Progress
    count: int
    tokens_in: int = 0
    tokens_out: int = 0
    done: int = 0

    async def one(self, number: int, conversation: Conversation) -> None:
        """Runs one conversation until it has ended."""
        sampling = Sampling.from_params(self.work.params)
        described = conversation.described
        while not conversation.finish_reason:
            ids = await asyncio.to_thread(self.tokenizing.chat, conversation.messages, described)
            if len(ids) >= self.tokenizing.context_length:
                conversation.end(CONTEXT)
                break
            request = self._request(number, conversation, ids, sampling)
            completion = await self.backend.complete(request, _ignore)
            self.tokens_in += len(ids)
            self.tokens_out += completion.tokens_out
            place = CallSite(self.work.action_id, f"{number}/{conversation.turns}")
            cut = completion.finish_reason == "length"
            calls = conversation.take(completion.text, cut=cut)
            if calls:
                conversation.give(await self.toolbox.run(calls, place))
        self.done += 1
        self.progress(self.done, self.count, "rows")

    def _request(
        self, number: int, conversation: Conversation, ids: list[int], sampling: Sampling
    ) -> Request:
        work, adapter = self.work, self.work.inputs.get(ADAPTER)
        step_seed = int(work.params["seed"])
        return Request(
            id=f"{work.attempt_id}/{number}/{conversation.turns}",
            token_ids=ids,
            seed=sample_seed(step_seed, conversation.canonical(), conversation.turns),
            sampling=replace(
                sampling,
                json_schema=conversation.schema(),
                keep_special_tokens=conversation.keeps_special_tokens,
            ),
            priority=work.priority,
            cache_salt=work.cache_salt,
            adapter=adapter if isinstance(adapter, TreeInput) else None,
        )


def _prepare(
    work: Work, source: DatasetInput, tokenizing: Tokenizing, toolbox: Toolbox, tokenizer: Any
) -> tuple[list[bytes], dict[bytes, Conversation]]:
    """Makes a conversation for every distinct prompt; refuses bad rows before any request."""
    params = dict(work.params)
    if params.get("prompt") is not None and params.get("messages") is None:
        params["messages"] = [{"role": "user", "content": params.pop("prompt")}]
    prompt = Prompt(params)
    protocol = _protocol(params, tokenizing, toolbox, tokenizer)
    keys: list[bytes] = []
    found: dict[bytes, Conversation] = {}
    for number, row in enumerate(source.rows(), 1):
        rendered = prompt.render(row, number)
        key = rendered.canonical()
        keys.append(key)
        if key not in found:
            asked = [m.for_template() for m in rendered.messages]
            found[key] = Conversation(asked, protocol, int(params["maxTurns"]))
            ids = tokenizing.chat(found[key].messages, protocol.described)
            tokenizing.require_fits_context(ids, number)
    return keys, found


def _protocol(
    params: Mapping[str, Any], tokenizing: Tokenizing, toolbox: Toolbox, tokenizer: Any
) -> CallProtocol:
    described = toolbox.descriptions()
    if params["toolChoice"] == "required":
        return ConstrainedCalls(described)
    templated, parser = tokenizing.supports_tools(described), params.get("toolParser")
    if parser and not templated:
        raise bad_input(
            "toolParser reads calls as the model's chat template teaches them, and that has none",
            "remove toolParser: a system message describes the tools then",
        )
    if parser:
        from flowmesh_worker.engines.agent.vllm_parser import ParserCalls  # noqa: PLC0415 - vLLM

        return ParserCalls(described, str(parser), tokenizer)
    return TemplateCalls(described) if templated else PromptedCalls(described)


def _row(
    params: Mapping[str, Any], row: Mapping[str, Any], conversation: Conversation
) -> dict[str, Any]:
    return {
        **row,
        str(params["output"]): conversation.answer,
        str(params["transcript"]): conversation.transcript,
        "finish_reason": conversation.finish_reason,
        "turns": conversation.turns,
    }


def _schema(params: Mapping[str, Any], source: DatasetInput) -> Schema:
    return Schema.of(
        {
            **source.manifest.schema.types(),
            str(params["output"]): ColumnType.STRING,
            str(params["transcript"]): ColumnType.JSON,
            "finish_reason": ColumnType.STRING,
            "turns": ColumnType.INT,
        }
    )


def _ignore(tokens: int) -> None:
    """Ignores progress by tokens: it is reported by rows."""
