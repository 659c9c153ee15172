"""Starts vLLM's AsyncLLM quickly, with an engine core that never outlives the host.

vLLM runs its engine core in a separate process. Importing vLLM takes most of a start on a CPU, and
a spawned core, its worker and the model's inspection would each import it again. On a CPU the core
is therefore forked from the host, which has imported everything and has not run a parallel loop
yet, and runs the model itself. With several devices, or on GPUs, vLLM chooses.
"""

import ctypes
import importlib
import os
import signal
from pathlib import Path
from typing import Any

from flowmesh_core.catalog.engine_settings import KV_CACHE_DTYPE, QUANTIZATION
from flowmesh_worker.engines.llm.adapters import MAX_RANK
from flowmesh_worker.engines.llm.cuda_graphs import graph_sizes
from flowmesh_worker.engines.llm.sampling_draws import use_in_core
from flowmesh_worker.engines.llm.step_watch import count_in_core
from flowmesh_worker.engines.llm.vllm_sizes import VllmSizes, cuts_prompts
from flowmesh_worker.engines.models.model_facts import ModelFacts
from flowmesh_worker.engines.preload import VLLM_ON_CPU

_PR_SET_PDEATHSIG = 1


def start_async_llm(facts: ModelFacts, dtype: str, sizes: VllmSizes, fields: dict[str, Any]) -> Any:
    """Builds an ``AsyncLLM``; blocks until the model is loaded.

    Args:
        facts: the model.
        dtype: the dtype to run in.
        sizes: sequences, step and cache.
        fields: ``devices`` (a count; 0 is the CPU), ``tensor_parallel``, ``adapted``, the names
            of the layers that adapters change (None for all that vLLM supports), ``pooling``,
            empty for an engine that generates, ``engine``, the settings of that parameter,
            ``pool``, those of the worker's pool, and ``sleeps``, whether it may be put asleep.

    The calling thread must live as long as the engine: on a CPU the kernel kills the engine core
    when the thread that forked it ends, so that it also dies with a killed host.
    """
    on_cpu = not fields["devices"]
    in_core = on_cpu and fields["tensor_parallel"] == 1
    if in_core:
        for name in VLLM_ON_CPU.modules:
            importlib.import_module(name)
        _register_architecture(facts)
        from flowmesh_worker.engines.llm import sampler_cpu, sleep_cpu  # noqa: PLC0415 - bring vLLM

        sampler_cpu.use_on_cpu()
        sleep_cpu.use_on_cpu()
        use_in_core()
    if not fields["pooling"]:
        count_in_core()
    from vllm.engine.arg_utils import AsyncEngineArgs  # noqa: PLC0415 - as above
    from vllm.v1.engine.async_llm import AsyncLLM  # noqa: PLC0415 - as above

    args = AsyncEngineArgs(
        **engine_arguments(facts, dtype, sizes, fields),
        **_runner_arguments(fields["pooling"]),
        **_adapter_arguments(sizes, fields, on_cpu=on_cpu),
    )
    if not in_core:
        return AsyncLLM.from_engine_args(args)
    with _variables(VLLM_ENABLE_V1_MULTIPROCESSING="0"):
        config = args.create_engine_config()
    # vLLM prefers spawned processes so that OpenMP's settings reach them; the host's environment
    # already has these.
    with _variables(VLLM_WORKER_MULTIPROC_METHOD="fork"):
        _end_children_with_this_thread()
        return AsyncLLM.from_vllm_config(config, disable_log_stats=True)


def engine_arguments(
    facts: ModelFacts, dtype: str, sizes: VllmSizes, fields: dict[str, Any]
) -> dict[str, Any]:
    """Returns the arguments of ``AsyncEngineArgs``, without those of poolers and adapters.

    Args:
        facts: the model.
        dtype: the dtype to run in.
        sizes: sequences, step and cache.
        fields: as of :func:`start_async_llm`.
    """
    pool = fields["pool"]
    on_gpu = bool(fields["devices"])
    in_core = not on_gpu and fields["tensor_parallel"] == 1
    share = pool.gpu_memory_utilization if on_gpu else None
    eager = not on_gpu or bool(pool.enforce_eager)
    graphs = None if eager else graph_sizes(sizes.sequences, sizes.batched_tokens)
    return {
        "model": str(facts.path),
        "dtype": dtype,
        "max_model_len": facts.context_length,
        "max_num_seqs": sizes.sequences,
        "max_num_batched_tokens": sizes.batched_tokens,
        "kv_cache_memory_bytes": sizes.kv_cache_bytes,
        "tensor_parallel_size": fields["tensor_parallel"],
        "scheduling_policy": "priority",
        "enable_chunked_prefill": cuts_prompts(pool, gpu=on_gpu),
        "enforce_eager": eager,
        "cudagraph_capture_sizes": graphs,
        "trust_remote_code": False,
        "disable_log_stats": True,
        "load_format": "safetensors",
        # Compact JSON: a small model may otherwise generate blanks until its limit.
        "structured_outputs_config": {"backend": "xgrammar", "disable_any_whitespace": True},
        "distributed_executor_backend": "uni" if in_core else None,
        "quantization": fields["engine"].get(QUANTIZATION),
        "kv_cache_dtype": fields["engine"].get(KV_CACHE_DTYPE, "auto"),
        **({} if share is None else {"gpu_memory_utilization": share}),
        **({"enable_sleep_mode": True} if on_gpu and fields.get("sleeps") else {}),
    }


def _runner_arguments(pooling: str) -> dict[str, Any]:
    if not pooling:
        return {"enable_prefix_caching": True, "enable_logging_iteration_details": True}
    # Without a cache, since a vector of all tokens needs those of the prefix too.
    arguments = {"runner": "pooling", "enable_prefix_caching": False}
    if pooling == "auto":
        return arguments
    from vllm.config import PoolerConfig  # noqa: PLC0415 - brings vLLM

    return {**arguments, "pooler_config": PoolerConfig(seq_pooling_type=pooling.upper())}


def _adapter_arguments(sizes: VllmSizes, fields: dict[str, Any], *, on_cpu: bool) -> dict[str, Any]:
    if not sizes.adapter_slots:
        return {}
    if on_cpu:
        from flowmesh_worker.engines.llm.punica_cpu import (  # noqa: PLC0415 - brings vLLM
            use_on_cpu,
        )

        use_on_cpu()
    return {
        "enable_lora": True,
        "max_loras": sizes.adapter_slots,
        "max_cpu_loras": 2 * sizes.adapter_slots,
        "max_lora_rank": MAX_RANK,
        "lora_target_modules": fields["adapted"],
    }


def _register_architecture(facts: ModelFacts) -> None:
    """Imports the model's class here, so that vLLM need not inspect it in another process."""
    import json  # noqa: PLC0415 - used here alone

    from vllm.model_executor.models.registry import ModelRegistry  # noqa: PLC0415 - as above

    config = json.loads((Path(facts.path) / "config.json").read_text())
    for name in config.get("architectures") or ():
        known = ModelRegistry.models.get(name)
        if known is not None and hasattr(known, "load_model_cls"):
            ModelRegistry.register_model(name, known.load_model_cls())


class _variables:  # noqa: N801 - reads as a statement: with _variables(...)
    """Sets environment variables for a block."""

    def __init__(self, **values: str) -> None:
        self._values = values
        self._before: dict[str, str | None] = {}

    def __enter__(self) -> None:
        self._before = {name: os.environ.get(name) for name in self._values}
        os.environ.update(self._values)

    def __exit__(self, *_: object) -> None:
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _end_children_with_this_thread() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    os.register_at_fork(
        after_in_child=lambda: libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    )
