"""Contracts of the engines that make one model from another."""

from flowmesh_core.catalog.contract import EngineContract, Port, PortKind
from flowmesh_core.catalog.timeouts import HOUR_S, MINUTE_S

MERGE = EngineContract(
    name="model.merge",
    version=1,
    implementation=1,
    default_timeout_s=30 * MINUTE_S,
    max_timeout_s=24 * HOUR_S,
    inputs=(
        Port("model", PortKind.MODEL, component=True, doc="The model that was adapted."),
        Port("adapter", PortKind.ADAPTER, doc="The adapter to write into it."),
    ),
    outputs=(Port("model", PortKind.MODEL, doc="The model with the adapter's changes."),),
    params=(),
    work_unit="bytes",
    base_memory_mib=1024,
    component_memory_factor=2.2,
    doc="Writes a LoRA adapter into its model's weights, which keep their dtype, and a reward"
    " adapter's head with them. Tokenizer and generation settings are the model's. For adapters"
    " that `llm.generate` does not serve as they are (DoRA, rank above 64, modules saved whole),"
    " and for models that leave the fabric.",
    examples=("inputs: {model: inputs.base, adapter: tune.adapter}",),
)

CONTRACTS = (MERGE,)
