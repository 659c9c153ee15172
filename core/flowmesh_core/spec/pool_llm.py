"""``spec.llm`` of a worker pool: how its workers run vLLM.

They are the pool's and not a step's, since tenants share engines. None of them is a part of a name:
results do not depend on batches, or are not promised to repeat (``batchInvariant: false``).
"""

from typing import Self

from pydantic import ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError

from flowmesh_core.catalog.llm_bounds import (
    BATCH_RULE,
    GPU_SHARE_MAX,
    GPU_SHARE_MIN,
    SEQUENCES_MAX,
    TOKENS_MAX,
    breaks_batch_rule,
)
from flowmesh_core.spec.error_messages import RULE
from flowmesh_core.spec.fields import SpecModel, cel_rules


class PoolLlm(SpecModel):
    """How the pool's workers run vLLM. FlowMesh chooses values for fields that are left out."""

    model_config = ConfigDict(
        json_schema_extra=cel_rules(
            (
                "!has(self.maxNumBatchedTokens) || !has(self.maxNumSeqs)"
                " || self.maxNumSeqs <= self.maxNumBatchedTokens",
                BATCH_RULE,
            )
        )
    )

    max_num_seqs: int | None = Field(
        default=None,
        ge=1,
        le=SEQUENCES_MAX,
        description="Maximum number of sequences that one engine decodes at once. Default 256 on"
        " devices, 64 on CPUs.",
    )
    max_num_batched_tokens: int | None = Field(
        default=None,
        ge=1,
        le=TOKENS_MAX,
        description="Maximum number of tokens in one step of an engine. Default 8192 on devices,"
        " 2048 on CPUs. If prompts are not split (on CPUs, or with enableChunkedPrefill: false), it"
        " is at least the model's context length.",
    )
    gpu_memory_utilization: float | None = Field(
        default=None,
        ge=GPU_SHARE_MIN,
        le=GPU_SHARE_MAX,
        description="The share of an engine's device memory for weights and the key-value cache;"
        " 0.9 by default. The rest is for activations.",
    )
    enforce_eager: bool | None = Field(
        default=None,
        description="If true, vLLM uses no CUDA graphs: it loads faster and needs less memory, but"
        " runs more slowly.",
    )
    enable_chunked_prefill: bool | None = Field(
        default=None,
        description="If false, each prompt is computed in one step instead of in chunks.",
    )

    @model_validator(mode="after")
    def _batch(self) -> Self:
        if breaks_batch_rule(self.max_num_batched_tokens, self.max_num_seqs):
            raise PydanticCustomError(RULE, BATCH_RULE)
        return self

    @property
    def for_devices(self) -> bool:
        """Whether something is given that engines on CPUs do not have."""
        own = (self.gpu_memory_utilization, self.enforce_eager, self.enable_chunked_prefill)
        return any(value is not None for value in own)
