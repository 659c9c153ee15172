"""A backend on transformers, for steps that do not use vLLM.

One thread decodes. If results must not depend on the batch, it decodes one request at a time; else
it batches waiting requests with the same adapter, highest priority first.
"""

import asyncio
import heapq
import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from flowmesh_core.errors import AttemptError
from flowmesh_worker.engine_api import HostSettings
from flowmesh_worker.engines.environment import apply_environment, library_environment
from flowmesh_worker.engines.errors import bad_input, engine_failed, out_of_memory
from flowmesh_worker.engines.llm.requests import Completion, Request
from flowmesh_worker.engines.models.model_facts import ModelFacts

_TOGETHER = 16
_Waiting = tuple[int, int, Any, "asyncio.Future[Completion]"]


class TransformersBackend:
    """A loaded model; created by :meth:`start`."""

    def __init__(
        self, model: Any, thread: ThreadPoolExecutor, context_length: int, together: int
    ) -> None:
        """Creates a backend without requests.

        Args:
            model: a ``TorchModel``.
            thread: the only thread that may use it.
            context_length: the maximum tokens of prompt and completion.
            together: how many requests to decode at once.
        """
        self.tokenizer = model.tokenizer
        self.context_length = context_length
        self._model = model
        self._thread = thread
        self._together = together
        self._waiting: list[_Waiting] = []
        self._order = itertools.count()
        self._runner: asyncio.Task[None] | None = None
        self._eos = _eos(model)

    @classmethod
    async def start(cls, facts: ModelFacts, settings: HostSettings) -> "TransformersBackend":
        """Loads the model.

        Raises:
            AttemptError: see ``TorchModel.load``.
        """
        invariant = bool(settings.signature_params.get("batchInvariant", True))
        apply_environment(library_environment(settings, batch_invariant=invariant))
        thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="transformers")
        loop = asyncio.get_running_loop()
        model = await loop.run_in_executor(thread, _load, facts, settings)
        return cls(model, thread, facts.context_length, 1 if invariant else _TOGETHER)

    async def complete(self, request: Request, grew: Callable[[int], None]) -> Completion:
        """See :class:`Backend`."""
        from flowmesh_worker.engines.llm.seeded_decoding import SampledSequence  # noqa: PLC0415 - torch is there now

        if request.sampling.json_schema is not None:
            raise bad_input(
                "jsonSchema needs vLLM: transformers does not constrain completions",
                "remove with.implementation, or set it to vllm",
            )
        loop = asyncio.get_running_loop()

        def report(tokens: int) -> None:
            loop.call_soon_threadsafe(grew, tokens)

        draw = SampledSequence(request, report)
        done: asyncio.Future[Completion] = loop.create_future()
        heapq.heappush(self._waiting, (-request.priority, next(self._order), draw, done))
        if self._runner is None or self._runner.done():
            self._runner = loop.create_task(self._run())
        try:
            return await done
        finally:
            draw.stopped = True

    async def close(self) -> None:
        """See :class:`Backend`."""
        if self._runner is not None:
            self._runner.cancel()
        self._thread.shutdown(wait=True)
        self._model = None

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while batch := self._next_batch():
            draws = [draw for _, _, draw, _ in batch]
            try:
                found = await loop.run_in_executor(
                    self._thread, _draw, self._model, self._eos, draws, self.context_length
                )
            except Exception as e:
                for *_, done in batch:
                    if not done.done():
                        done.set_exception(_failure(e))
                continue
            for (*_, done), completion in zip(batch, found, strict=True):
                if not done.done():
                    done.set_result(completion)

    def _next_batch(self) -> list[_Waiting]:
        batch: list[_Waiting] = []
        while self._waiting and len(batch) < self._together:
            if batch and self._waiting[0][2].request.adapter != batch[0][2].request.adapter:
                break
            item = heapq.heappop(self._waiting)
            if not item[3].done():
                batch.append(item)
        return batch


def _load(facts: ModelFacts, settings: HostSettings) -> Any:
    from flowmesh_worker.engines.llm.torch_model import TorchModel  # noqa: PLC0415 - brings torch

    return TorchModel.load(facts, settings, head="language")


def _draw(model: Any, eos: frozenset[int], draws: Any, context_length: int) -> list[Completion]:
    from flowmesh_worker.engines.llm.seeded_decoding import draw_together  # noqa: PLC0415 - brings torch

    return draw_together(model, eos, draws, context_length)


def _eos(model: Any) -> frozenset[int]:
    found = model.with_adapter(None).generation_config.eos_token_id
    listed = found if isinstance(found, list) else [found]
    return frozenset(t for t in (*listed, model.tokenizer.eos_token_id) if t is not None)


def _failure(error: Exception) -> AttemptError:
    if isinstance(error, AttemptError):
        return error
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return out_of_memory(f"the model ran out of memory: {error}", "raise resources.memory")
    return engine_failed("transformers failed on a request", error)
