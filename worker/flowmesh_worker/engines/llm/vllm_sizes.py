"""Chooses vLLM's sizes: concurrent sequences, key-value cache, adapter slots, from the memory."""

from dataclasses import dataclass

from flowmesh_worker.engine_api import HostSettings
from flowmesh_worker.engines.errors import out_of_memory
from flowmesh_worker.engines.models.model_facts import ModelFacts
from flowmesh_worker.llm_settings import PoolLlmSettings

MIB = 1024 * 1024
SEQUENCES_CPU = 64
SEQUENCES_GPU = 256
BATCHED_TOKENS_CPU = 2048
BATCHED_TOKENS_GPU = 8192
_PROCESS_MIB = 1100
"""Resident memory of the host and the engine core on a CPU, without weights, cache and step."""
_STEPS_MIB = 300
"""What torch keeps of the memory of steps on a CPU: 240 MiB for SmolLM2, after 24 prompts."""
_USUAL_TOKENS = 1024
"""Expected tokens of a sequence; the cache is not made larger than all sequences need."""
ADAPTER_SLOTS = 8
_PINNED_SHARE = 1.5
"""Host memory of weights that are asleep, over their size: torch rounds pinned memory up.

22 GiB for the 15.3 GiB of Qwen3-8B (vLLM pull request 48337)."""
_GPU_SHARE = 0.9
_CHOSEN = PoolLlmSettings()


@dataclass(frozen=True, slots=True)
class VllmSizes:
    """The sizes of an engine instance.

    Attributes:
        sequences: requests that run at once.
        batched_tokens: the maximum tokens of one step; where prompts are not cut (on a CPU, for
            example) at least those of the longest prompt.
        kv_cache_bytes: the key-value cache.
        adapter_slots: adapters that one step may apply; 0 without adapters.
    """

    sequences: int
    batched_tokens: int
    kv_cache_bytes: int
    adapter_slots: int = 0


def sizes_for(
    facts: ModelFacts,
    dtype: str,
    settings: HostSettings,
    slot_bytes: int = 0,
    pool: PoolLlmSettings = _CHOSEN,
) -> VllmSizes:
    """Chooses the sizes.

    Args:
        facts: the model.
        dtype: the dtype to run in.
        settings: memory and devices.
        slot_bytes: memory of an adapter slot; 0 without adapters.
        pool: of the worker's pool.

    Raises:
        AttemptError: out of memory; weights and one sequence do not fit.
    """
    gpu = bool(settings.devices)
    sequences = pool.max_num_seqs or (SEQUENCES_GPU if gpu else SEQUENCES_CPU)
    share = (pool.gpu_memory_utilization or _GPU_SHARE) if gpu else 1.0
    per_token = facts.kv_bytes_per_token(dtype)
    weights = facts.weight_bytes_as(dtype)
    allowed = int(settings.memory_mib * MIB * share)
    batched_tokens = _batched_tokens(facts, pool, sequences, gpu=gpu)
    step = batched_tokens * facts.activation_bytes_per_token(dtype)
    # On a GPU a step uses what the share leaves.
    free = allowed - weights - (0 if gpu else _PROCESS_MIB * MIB + step)
    # One block more than the longest sequence: the cache is allocated in whole blocks.
    least = (facts.context_length + 256) * per_token
    if free < least + slot_bytes:
        needed = (allowed - free + least + slot_bytes) // MIB + 1
        slot = f" and {slot_bytes // MIB} MiB for an adapter" if slot_bytes else ""
        raise out_of_memory(
            f"the model needs {weights // MIB} MiB for weights as {dtype}, {least // MIB} MiB"
            f" for one sequence of {facts.context_length:,} tokens{slot}; the host may use"
            f" {settings.memory_mib} MiB",
            f"set resources.memory to at least {needed}Mi, or use a smaller model or dtype",
        )
    slots = 0
    if slot_bytes:
        # Half of the memory that one sequence and one adapter leave; the cache gets the rest.
        slots = min(ADAPTER_SLOTS, 1 + (free - least - slot_bytes) // 2 // slot_bytes)
        free -= slots * slot_bytes
    usual = sequences * min(_USUAL_TOKENS, facts.context_length) * per_token
    return VllmSizes(
        sequences=sequences,
        batched_tokens=batched_tokens,
        kv_cache_bytes=free if gpu else min(free, max(least, usual)),
        adapter_slots=slots,
    )


def asleep_mib(facts: ModelFacts, settings: HostSettings, slot_bytes: int = 0) -> int:
    """Returns the host memory of an instance that is asleep; 0 where vLLM cannot sleep.

    Args:
        facts: the model.
        settings: of the host.
        slot_bytes: memory of an adapter slot; 0 without adapters.
    """
    params = settings.signature_params
    weights = facts.weight_bytes_as(facts.resolve_dtype(str(params.get("dtype", "auto"))))
    weights += ADAPTER_SLOTS * slot_bytes
    if settings.devices:
        return int(weights * _PINNED_SHARE) // MIB + 1
    # With several processes vLLM starts them itself, and does not free their caches.
    in_core = int(params.get("tensorParallel", 1)) == 1
    return weights // MIB + 1 + _PROCESS_MIB + _STEPS_MIB if in_core else 0


def cuts_prompts(pool: PoolLlmSettings, *, gpu: bool) -> bool:
    """Whether a prompt may be processed in several steps.

    Never on a CPU: a prompt in two parts resets its generator, which those on a CPU do not support.
    """
    return gpu and pool.enable_chunked_prefill is not False


def _batched_tokens(facts: ModelFacts, pool: PoolLlmSettings, sequences: int, *, gpu: bool) -> int:
    wanted = pool.max_num_batched_tokens or (BATCHED_TOKENS_GPU if gpu else BATCHED_TOKENS_CPU)
    least = 1 if cuts_prompts(pool, gpu=gpu) else facts.context_length
    return max(wanted, least, sequences)
