"""How the workers of a pool run vLLM: ``spec.llm`` of the pool, in the worker's environment.

On a cluster the operator sets the variable; on a laptop the user may. The worker refuses a wrong
value at its start, and engine hosts inherit the variable.
"""

import os
from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from flowmesh_core.decoding import decode

VARIABLE = "FLOWMESH_LLM"
EAGER = "vllm-eager"
"""The name under which results say that no CUDA graphs were used: it may change last digits."""


class PoolLlmSettings(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """See ``flowmesh_core.spec.pool_llm.PoolLlm``; None leaves the choice to FlowMesh."""

    max_num_seqs: Annotated[int, Meta(ge=1)] | None = None
    max_num_batched_tokens: Annotated[int, Meta(ge=1)] | None = None
    gpu_memory_utilization: Annotated[float, Meta(gt=0, le=1)] | None = None
    enforce_eager: bool | None = None
    enable_chunked_prefill: bool | None = None


_DECODER = msgspec.json.Decoder(PoolLlmSettings)


def pool_llm_settings(environment: Mapping[str, str] = os.environ) -> PoolLlmSettings:
    """Returns the settings of the worker's pool.

    Raises:
        ValueError: the variable is not JSON of these settings; says what is wrong.
    """
    text = environment.get(VARIABLE, "")
    if not text:
        return PoolLlmSettings()
    try:
        return decode(_DECODER, text.encode())
    except msgspec.DecodeError as e:
        raise ValueError(f"{VARIABLE}: {e}") from e
