"""How the workers of a pool run vLLM: ``spec.llm`` of the pool, in the worker's environment.

On a cluster the operator sets the variable; on a laptop the user may. The worker refuses a wrong
value at its start, and engine hosts inherit the variable.
"""

import os
from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from flowmesh_core.catalog.llm_bounds import (
    BATCH_RULE,
    GPU_SHARE_MAX,
    GPU_SHARE_MIN,
    SEQUENCES_MAX,
    TOKENS_MAX,
    breaks_batch_rule,
)
from flowmesh_core.decoding import decode

VARIABLE = "FLOWMESH_LLM"
EAGER = "vllm-eager"
"""The name under which results say that no CUDA graphs were used: it may change last digits."""

_REMEDY = (
    """correct it or remove it; it is an object of JSON such as '{"maxNumSeqs": 32}', with the"""
    " fields and limits of spec.llm of a pool (docs/spec.md)"
)


class PoolLlmSettings(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """See ``flowmesh_core.spec.pool_llm.PoolLlm``; None leaves the choice to FlowMesh."""

    max_num_seqs: Annotated[int, Meta(ge=1, le=SEQUENCES_MAX)] | None = None
    max_num_batched_tokens: Annotated[int, Meta(ge=1, le=TOKENS_MAX)] | None = None
    gpu_memory_utilization: Annotated[float, Meta(ge=GPU_SHARE_MIN, le=GPU_SHARE_MAX)] | None = None
    enforce_eager: bool | None = None
    enable_chunked_prefill: bool | None = None

    def __post_init__(self) -> None:
        """Raises ``ValueError`` for settings that cannot be together."""
        if breaks_batch_rule(self.max_num_batched_tokens, self.max_num_seqs):
            raise ValueError(BATCH_RULE)


_DECODER = msgspec.json.Decoder(PoolLlmSettings)


def pool_llm_settings(environment: Mapping[str, str] = os.environ) -> PoolLlmSettings:
    """Returns the settings of the worker's pool.

    Raises:
        ValueError: the variable is not JSON of these settings; says which is wrong and how.
    """
    text = environment.get(VARIABLE, "")
    if not text:
        return PoolLlmSettings()
    try:
        return decode(_DECODER, text.encode(errors="replace"))
    except msgspec.DecodeError as e:
        raise ValueError(f"{VARIABLE}: {e}; {_REMEDY}") from e
