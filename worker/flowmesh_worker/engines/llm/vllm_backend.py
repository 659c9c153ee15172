"""A backend on vLLM: requests of many actions in one running engine.

vLLM batches continuously: a request joins the running batch as soon as it is admitted, from any
action or workflow. Results do not depend on the batch if ``batchInvariant`` is set (float32 on a
CPU; vLLM's batch-invariant mode on GPUs).
"""

import asyncio
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from flowmesh_core.errors import AttemptError
from flowmesh_worker.engine_api import HostSettings, TreeInput
from flowmesh_worker.engines.environment import apply_environment, library_environment
from flowmesh_worker.engines.errors import (
    bad_input,
    engine_failed,
    host_crashed,
    out_of_memory,
    unplaceable,
)
from flowmesh_worker.engines.llm.adapters import ADAPTER, LoraTargets
from flowmesh_worker.engines.llm.grammar_limits import GrammarLimits
from flowmesh_worker.engines.llm.grammar_process import GrammarProcess
from flowmesh_worker.engines.llm.requests import Completion, Request, Sampling
from flowmesh_worker.engines.llm.sequence_places import SequencePlaces
from flowmesh_worker.engines.llm.step_watch import StepWatch
from flowmesh_worker.engines.llm.vllm_adapters import VllmAdapters
from flowmesh_worker.engines.llm.vllm_sizes import asleep_mib, sizes_for
from flowmesh_worker.engines.llm.vllm_start import start_async_llm
from flowmesh_worker.engines.models.model_facts import DTYPE_BYTES, ModelFacts
from flowmesh_worker.llm_settings import pool_llm_settings

_SHOWN_CHARS = 400
_STREAM_EVERY = 16
"""Tokens between two reports of one request's progress."""


class VllmBackend:
    """A loaded model; created by :meth:`start`.

    Attributes:
        engine: the running ``AsyncLLM``.
        tokenizer: of the model.
        context_length: the maximum tokens of prompt and completion.
        grammars: bounds what compiling a request's grammar may take.
        places: which of its sequences run.
        asleep_mib: host memory that it takes while it is asleep; 0 if it cannot sleep.
    """

    def __init__(
        self,
        engine: Any,
        thread: ThreadPoolExecutor,
        context_length: int,
        grammars: GrammarLimits,
        adaptable: LoraTargets | None = None,
    ) -> None:
        """Wraps a running engine.

        Args:
            engine: a running ``AsyncLLM``.
            thread: the thread that started it and shuts it down.
            context_length: the maximum tokens of prompt and completion.
            grammars: bounds what compiling a request's grammar may take.
            adaptable: the layers that adapters may change; None without adapters.
        """
        self.engine = engine
        self.grammars = grammars
        self._thread = thread
        self.places = SequencePlaces(int(engine.vllm_config.scheduler_config.max_num_seqs))
        StepWatch(engine, self.places)
        self._adapters = VllmAdapters(engine, adaptable)
        self.tokenizer = engine.get_tokenizer()
        self.context_length = context_length
        self.asleep_mib = 0

    @classmethod
    async def start(cls, facts: ModelFacts, settings: HostSettings) -> "VllmBackend":
        """Loads the model.

        Raises:
            AttemptError: unplaceable or out of memory, with a remedy.
        """
        adaptable = await asyncio.to_thread(_adaptable, facts, settings)
        start = prepare_start(facts, settings, adaptable)
        try:
            (process, engine), thread = await start_on_thread(
                lambda: (GrammarProcess.fork(facts.path), start())
            )
        except (ValueError, NotImplementedError) as e:
            if not settings.signature_params.get("engine"):
                raise
            raise bad_input(
                f"vLLM refuses with.engine here: {str(e)[-_SHOWN_CHARS:]}",
                "correct it, or use a pool whose devices have what it needs",
            ) from e
        found = cls(engine, thread, facts.context_length, GrammarLimits(process), adaptable)
        if settings.sleeps:
            found.asleep_mib = asleep_mib(facts, settings, _slot_bytes(facts, settings, adaptable))
        return found

    async def complete(self, request: Request, grew: Callable[[int], None]) -> Completion:
        """See :class:`Backend`."""
        from vllm.exceptions import VLLMClientError  # noqa: PLC0415 - loaded by start
        from vllm.v1.engine.exceptions import EngineDeadError  # noqa: PLC0415 - as above

        growth = _Growth(grew)
        try:
            return await self.places.of_row(
                request.id, request.priority, lambda: self._stream(request, growth.begin())
            )
        except AttemptError:
            raise
        except EngineDeadError as e:
            raise host_crashed("vLLM's engine core has ended", e) from e
        except Exception as e:
            # vLLM wraps its errors about a request if they are plain ValueErrors.
            cause = e.__cause__ or e
            if isinstance(cause, VLLMClientError | ValueError):
                raise bad_input(
                    f"vLLM refuses the request: {cause}",
                    "correct the parameter that it names (jsonSchema, stop, maxTokens ...)",
                ) from e
            raise engine_failed("vLLM failed on a request", cause) from e

    async def _stream(self, request: Request, grew: Callable[[int], None]) -> Completion:
        from vllm.inputs.engine import tokens_input  # noqa: PLC0415 - loaded by start

        text, tokens, reason = [], 0, "length"
        prompt = tokens_input(list(request.token_ids), cache_salt=request.cache_salt or None)
        params = sampling_params(request.sampling, request.seed)
        if request.sampling.no_repeat_ngram:
            raise bad_input(
                "noRepeatNgram needs transformers: vLLM has no such limit",
                "set with.implementation: transformers, or use penalties",
            )
        if params.structured_outputs is not None:
            await self.grammars.require(params.structured_outputs, request.cache_salt)
        adapter = request.adapter and await self._adapters.request_for(request.adapter)
        async for output in self.engine.generate(
            prompt,
            params,
            request.id,
            lora_request=adapter,
            priority=-request.priority,  # vLLM serves the smallest number first
        ):
            delta = output.outputs[0]
            text.append(delta.text)
            tokens += len(delta.token_ids)
            grew(len(delta.token_ids))
            reason = delta.finish_reason or reason
        if reason not in ("stop", "length"):
            raise engine_failed(
                f"vLLM ended a request with {reason!r}", RuntimeError(f"request {request.id}")
            )
        return Completion("".join(text), reason, tokens)

    async def load_adapters(self, adapters: Mapping[str, TreeInput]) -> dict[str, Any]:
        """Loads the adapters of a replica; vLLM evicts none of them, since each has a slot.

        Returns:
            What makes vLLM apply each, by name.

        Raises:
            AttemptError: out of memory, as there is no slot for each; or bad input.
        """
        slots = int(self.engine.vllm_config.lora_config.max_loras)
        if len(adapters) > slots:
            raise out_of_memory(
                f"the memory of the replica has room for {slots} of its {len(adapters)} adapters",
                "raise resources.memory, or list fewer adapters",
            )
        return {name: await self._adapters.request_for(one) for name, one in adapters.items()}

    async def sleep(self) -> None:
        """Moves the weights to host memory, and forgets the key-value cache with its prefixes.

        On a CPU the weights stay where they are.
        """
        await self.engine.sleep(level=1)

    async def wake(self) -> None:
        """Takes requests again, with an empty cache."""
        await self.engine.wake_up()

    async def close(self) -> None:
        """See :class:`Backend`."""
        self.grammars.close()
        await stop_async_llm(self.engine, self._thread)


class _Growth:
    """Reports the tokens of a request that may begin again, each once."""

    def __init__(self, grew: Callable[[int], None]) -> None:
        self._grew = grew
        self._tokens = self._most = 0

    def begin(self) -> Callable[[int], None]:
        """Returns what is called with the tokens of a try as they are made."""
        self._tokens = 0
        return self._add

    def _add(self, tokens: int) -> None:
        self._tokens += tokens
        if self._tokens > self._most:
            more, self._most = self._tokens - self._most, self._tokens
            self._grew(more)


async def start_on_thread(start: Callable[[], Any]) -> tuple[Any, ThreadPoolExecutor]:
    """Starts an engine on a thread of its own, which must shut it down.

    Args:
        start: of :func:`prepare_start`.

    Returns:
        The ``AsyncLLM`` and its thread.
    """
    thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="vllm-owner")
    loop = asyncio.get_running_loop()
    try:
        return await loop.run_in_executor(thread, start), thread
    except BaseException:
        thread.shutdown(wait=False)
        raise


async def stop_async_llm(engine: Any, thread: ThreadPoolExecutor) -> None:
    """Shuts down an engine and its thread."""
    # The output handler would report the core's end as a failure.
    if engine.output_handler is not None:
        engine.output_handler.cancel()
        await asyncio.gather(engine.output_handler, return_exceptions=True)
    await asyncio.get_running_loop().run_in_executor(thread, engine.shutdown)
    thread.shutdown(wait=True)


def _adaptable(facts: ModelFacts, settings: HostSettings) -> LoraTargets | None:
    """Returns the layers that adapters may change, if this instance serves adapters."""
    return LoraTargets.of_model(facts.path) if ADAPTER in settings.mixed else None


def _slot_bytes(facts: ModelFacts, settings: HostSettings, adaptable: LoraTargets | None) -> int:
    dtype = facts.resolve_dtype(str(settings.signature_params.get("dtype", "auto")))
    return adaptable.slot_bytes(DTYPE_BYTES[dtype]) if adaptable else 0


def prepare_start(
    facts: ModelFacts,
    settings: HostSettings,
    adaptable: LoraTargets | None = None,
    pooling: str = "",
) -> Callable[[], Any]:
    """Prepares the start of an engine and sets its environment variables.

    Args:
        facts: the model.
        settings: of the host.
        adaptable: the model's layers if requests may have adapters.
        pooling: for an engine that embeds, how tokens' vectors become one; empty for one that
            generates.

    Returns:
        A function that returns the ``AsyncLLM``; see :func:`start_async_llm` for its thread.

    Raises:
        AttemptError: unplaceable or out of memory, with what to change.
    """
    params = settings.signature_params
    invariant = bool(params.get("batchInvariant", not pooling))
    dtype = facts.resolve_dtype(str(params.get("dtype", "auto")))
    if invariant and not settings.devices and dtype != "float32":
        raise unplaceable(
            f"on a CPU vLLM's results in {dtype} depend on the batch",
            "set with.dtype: float32, or with.batchInvariant: false",
        )
    slot_bytes = _slot_bytes(facts, settings, adaptable)
    pool = pool_llm_settings()
    sizes = sizes_for(facts, dtype, settings, slot_bytes, pool)
    apply_environment(library_environment(settings, batch_invariant=invariant))
    fields = {
        "devices": len(settings.devices),
        "tensor_parallel": int(params.get("tensorParallel", 1)),
        "pooling": pooling,
        "engine": params.get("engine") or {},
        "pool": pool,
        "sleeps": settings.sleeps and not pooling,
        "adapted": sorted(adaptable.names) if adaptable and not adaptable.has_experts else None,
    }
    return partial(start_async_llm, facts, dtype, sizes, fields)


def sampling_params(sampling: Sampling, seed: int) -> Any:
    """Converts sampling parameters to vLLM's."""
    from vllm import SamplingParams  # noqa: PLC0415 - loaded by start
    from vllm.sampling_params import (  # noqa: PLC0415 - as above
        RequestOutputKind,
        StructuredOutputsParams,
    )

    schema = sampling.json_schema
    return SamplingParams(
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        min_p=sampling.min_p,
        max_tokens=sampling.max_tokens,
        stop=list(sampling.stop),
        repetition_penalty=sampling.repetition_penalty,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        min_tokens=sampling.min_tokens,
        stop_token_ids=list(sampling.stop_token_ids),
        bad_words=list(sampling.bad_words),
        include_stop_str_in_output=sampling.include_stop,
        ignore_eos=sampling.ignore_eos,
        skip_special_tokens=not sampling.keep_special_tokens,
        seed=seed,
        output_kind=RequestOutputKind.DELTA,
        stream_interval=_STREAM_EVERY,
        structured_outputs=None if schema is None else StructuredOutputsParams(json=dict(schema)),
    )
