"""How much vLLM may hold: sequences at once and the key-value cache, from what the host may use."""

from dataclasses import dataclass

from flowmesh_worker.engine_api import HostSettings
from flowmesh_worker.engines.llm.model_facts import ModelFacts
from flowmesh_worker.engines.llm.refusal import out_of_memory

MIB = 1024 * 1024
SEQUENCES_CPU = 64
SEQUENCES_GPU = 256
BATCHED_TOKENS_CPU = 2048
BATCHED_TOKENS_GPU = 8192
_PROCESS_MIB = 1100
"""Resident memory of the host and the engine core on a CPU, besides weights and cache."""
_USUAL_TOKENS = 1024
"""Tokens a sequence is expected to hold; the cache is not made larger than all of them need."""
_GPU_SHARE = 0.9


@dataclass(frozen=True, slots=True)
class Sizes:
    """What an engine instance is built for.

    Attributes:
        sequences: requests that run at once.
        batched_tokens: the most tokens of one step; on a CPU no less than the longest prompt, which
            must be read in one step there.
        kv_cache_bytes: the key-value cache.
    """

    sequences: int
    batched_tokens: int
    kv_cache_bytes: int


def sizes_for(facts: ModelFacts, dtype: str, settings: HostSettings) -> Sizes:
    """Chooses the sizes.

    Raises:
        AttemptError: out of memory; weights and one sequence do not fit.
    """
    gpu = bool(settings.devices)
    sequences = SEQUENCES_GPU if gpu else SEQUENCES_CPU
    per_token = facts.kv_bytes_per_token(dtype)
    weights = facts.weight_bytes_as(dtype)
    allowed = int(settings.memory_mib * MIB * _GPU_SHARE) if gpu else settings.memory_mib * MIB
    room = allowed - weights - (0 if gpu else _PROCESS_MIB * MIB)
    # A block more than the longest sequence: the cache is handed out in whole blocks.
    least = (facts.context_length + 256) * per_token
    if room < least:
        needed = (allowed - room + least) // MIB + 1
        raise out_of_memory(
            f"the model needs {weights // MIB} MiB for weights as {dtype} and {least // MIB} MiB"
            f" for one sequence of {facts.context_length:,} tokens; the host may use"
            f" {settings.memory_mib} MiB",
            f"set resources.memory to at least {needed}Mi, or use a smaller model or dtype",
        )
    usual = sequences * min(_USUAL_TOKENS, facts.context_length) * per_token
    return Sizes(
        sequences=sequences,
        batched_tokens=BATCHED_TOKENS_GPU if gpu else max(BATCHED_TOKENS_CPU, facts.context_length),
        kv_cache_bytes=room if gpu else min(room, max(least, usual)),
    )
