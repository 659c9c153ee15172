"""The engine ``llm.generate``: each sample of each row becomes a request and an output row.

``run`` is called for many actions at once; one backend batches all their requests. A row that
cannot be rendered or is too long fails its own action before any of its requests is sent. A
completion that does not satisfy the step's JSON schema fails its action after all samples are
generated: nothing of that action is published.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from flowmesh_core.catalog.adapter_ports import adapter_names
from flowmesh_core.errors import AttemptError, Failure, FailureKind
from flowmesh_core.protocol.messages import EngineVariant
from flowmesh_core.protocol.serving import TokenTargets
from flowmesh_worker.engine_api import (
    HostSettings,
    Progress,
    Result,
    Rows,
    ServingAnswer,
    ServingCall,
    TreeInput,
    Work,
)
from flowmesh_worker.engines.errors import unplaceable
from flowmesh_worker.engines.json_schemas import JsonSchema
from flowmesh_worker.engines.llm.adapters import ADAPTER, LoraTargets
from flowmesh_worker.engines.llm.backends import start_backend, supported_variants
from flowmesh_worker.engines.llm.completion_columns import CompletionColumns
from flowmesh_worker.engines.llm.sampling_run import SampledBatch, draw
from flowmesh_worker.engines.llm.serving_calls import ServingCalls
from flowmesh_worker.engines.llm.sleeping import SleepsWithBackend
from flowmesh_worker.engines.models.model_facts import read_facts
from flowmesh_worker.engines.preload import HostPreload, preload_of_implementation
from flowmesh_worker.engines.tokens import Tokenizing

if TYPE_CHECKING:
    from flowmesh_worker.engines.llm.requests import Backend
    from flowmesh_worker.engines.llm.vllm_backend import VllmBackend

_CAPACITY = 64
_SCHEMA = "with.jsonSchema"
_UNENFORCED = (
    "ask for it in the prompt too, or express it differently: not every keyword constrains the"
    " sampling (not, allOf, or lengths together with a pattern, for example)"
)
_SHOWN_CHARS = 2000


class LlmGenerate(SleepsWithBackend):
    """The engine ``llm.generate``; see :class:`flowmesh_worker.engine_api.Engine`.

    Attributes:
        adapters: names of those that calls of services may choose; see ``HasAdapters``.
    """

    def __init__(self) -> None:
        self.capacity = _CAPACITY
        self._backend: Backend | None = None
        self._tokenizing: Tokenizing | None = None
        self._calls: ServingCalls | None = None
        self.adapters: tuple[str, ...] = ()

    @staticmethod
    def variants(device_class: str) -> list[EngineVariant]:
        """Returns the variants that this installation serves on devices of a class."""
        return supported_variants("llm.generate", device_class)

    @staticmethod
    def prepares(params: Mapping[str, Any], *, on_devices: bool) -> HostPreload | None:
        """Returns what a standby host of this engine imports."""
        return preload_of_implementation(params, on_devices=on_devices)

    async def load(self, components: Mapping[str, TreeInput], settings: HostSettings) -> None:
        """Loads the model with the signature's implementation, and the adapters of a replica."""
        facts = await asyncio.to_thread(read_facts, components["model"].path)
        adapters = {n: components[p] for n, p in adapter_names(components).items()}
        if adapters:
            await asyncio.to_thread(_check_adapters, facts.path, adapters)
            settings = replace(settings, mixed=settings.mixed | {ADAPTER})
        backend = await start_backend(facts, settings)
        self._backend = backend
        self._tokenizing = Tokenizing(backend.tokenizer, backend.context_length)
        self._calls = ServingCalls.of_backend(backend)
        if adapters:
            await self._load_adapters(backend, adapters)

    async def _load_adapters(self, backend: "Backend", adapters: Mapping[str, TreeInput]) -> None:
        if self._calls is None:
            raise unplaceable(
                "only vLLM answers calls with adapters", "set with.implementation: vllm"
            )
        self._calls.adapters = await cast("VllmBackend", backend).load_adapters(adapters)
        self.adapters = tuple(adapters)

    async def run(self, work: Work, progress: Progress) -> Result:
        """Generates completions for all rows of one action."""
        if self._backend is None or self._tokenizing is None:
            raise RuntimeError("llm.generate was given work before it was loaded")
        source = work.dataset("rows")
        given = work.params.get("jsonSchema")
        schema = None if given is None else await asyncio.to_thread(JsonSchema, given, _SCHEMA)
        drawn = await draw(work, work.params, source, self._backend, self._tokenizing, progress)
        if schema is not None:
            await asyncio.to_thread(_require, schema, drawn)
        written = CompletionColumns(work.params, self._tokenizing)
        rows = await asyncio.to_thread(written.rows, drawn)
        return Result({"rows": Rows(rows, written.schema(source))}, drawn.usage)

    def serves(self) -> tuple[tuple[str, ...], int]:
        """Returns the paths that the loaded engine answers: none without vLLM. See ``Serves``."""
        return ((), 0) if self._calls is None else (self._calls.paths, self._calls.calls_max)

    def use_targets(self, targets: TokenTargets, changed: Callable[[int], None]) -> None:
        """Keeps targets of the services whose calls it answers. See ``KeepsTokenTargets``."""
        if self._calls is not None:
            self._calls.use_targets(targets, changed)

    async def answer(self, call: ServingCall) -> ServingAnswer:
        """Answers a call of a service beside the attempts. See ``Serves``."""
        if self._calls is None:
            raise RuntimeError("llm.generate was given a call that it does not answer")
        return await self._calls.answer(call)

    def stream(self, call: ServingCall) -> AsyncIterator[bytes | ServingAnswer]:
        """Answers a call of a service as a stream. See ``Serves``."""
        if self._calls is None:
            raise RuntimeError("llm.generate was given a call that it does not answer")
        return self._calls.stream(call)

    async def close(self) -> None:
        """Frees the model."""
        if self._backend is not None:
            await self._backend.close()
            self._backend = None


def _check_adapters(model: Path, adapters: Mapping[str, TreeInput]) -> None:
    """Refuses adapters that vLLM would serve wrongly, before the model is loaded."""
    targets = LoraTargets.of_model(model)
    for adapter in adapters.values():
        targets.check(adapter.path)


def _require(schema: JsonSchema, drawn: SampledBatch) -> None:
    """Fails the action on the first completion that does not satisfy the schema."""
    checked = set()
    for sample, completion in drawn:
        if sample.key in checked:
            continue
        checked.add(sample.key)
        problem = schema.problem_of_text(completion.text)
        if problem:
            cut = completion.finish_reason == "length"
            raise AttemptError(
                Failure(
                    FailureKind.BAD_INPUT,
                    f"row {sample.number} of this chunk, sample {sample.index}: the completion"
                    f" does not satisfy {_SCHEMA}: {problem}"
                    + (" (it was cut at with.maxTokens)" if cut else ""),
                    "raise with.maxTokens" if cut else _UNENFORCED,
                    completion.text[:_SHOWN_CHARS],
                )
            )
