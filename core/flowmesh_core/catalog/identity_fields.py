"""The identity fields: settings outside an engine's own parameters that change its results.

``with`` has ``dtype``, ``batchInvariant`` and ``implementation`` for the engines that declare them;
``tensorParallel`` is written under ``resources``. The compiler types and defaults them as it does
parameters.
"""

from dataclasses import replace

from flowmesh_core.catalog.contract import EngineContract, Param, ParamType

DTYPE = Param(
    "dtype",
    ParamType.STRING,
    default="auto",
    choices=("auto", "float32", "bfloat16", "float16"),
    doc="The type of the weights; `auto` is the model's own.",
)
BATCH_INVARIANT = Param(
    "batchInvariant",
    ParamType.BOOLEAN,
    default=True,
    doc="Whether results must not depend on the batch (float32 on a CPU, the batch-invariant mode"
    " on GPUs).",
)
IMPLEMENTATION = Param(
    "implementation",
    ParamType.STRING,
    default="vllm",
    choices=("vllm", "transformers"),
    doc="The library that runs the model.",
)
TENSOR_PARALLEL = Param(
    "tensorParallel",
    ParamType.INTEGER,
    default=1,
    minimum=1,
    maximum=64,
    doc="The number of devices that share one copy of the model; written under `resources`.",
)

IDENTITY_FIELDS: dict[str, Param] = {
    p.name: p for p in (DTYPE, BATCH_INVARIANT, IMPLEMENTATION, TENSOR_PARALLEL)
}
"""Every identity field as a parameter, by name."""

WITH_FIELDS = ("dtype", "batchInvariant", "implementation")
"""Those that are written in ``with``."""


def with_fields(contract: EngineContract) -> tuple[str, ...]:
    """Returns the engine's identity fields that are written in ``with``."""
    return tuple(name for name in contract.identity_fields if name in WITH_FIELDS)


def resource_fields(contract: EngineContract) -> tuple[str, ...]:
    """Returns the engine's identity fields that are written under ``resources``."""
    return tuple(name for name in contract.identity_fields if name not in WITH_FIELDS)


def identity_field(contract: EngineContract, name: str) -> Param:
    """Returns an identity field as a parameter, with the default that it has for this engine."""
    own = dict(contract.field_defaults)
    field = IDENTITY_FIELDS[name]
    return replace(field, default=own[name]) if name in own else field
