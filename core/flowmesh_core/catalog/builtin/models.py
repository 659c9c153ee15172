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
        Port(
            "model",
            PortKind.MODEL,
            component=True,
            doc="The model that the adapter was trained on.",
        ),
        Port("adapter", PortKind.ADAPTER, doc="The adapter to merge into the model."),
    ),
    outputs=(Port("model", PortKind.MODEL, doc="The merged model."),),
    params=(),
    work_unit="bytes",
    base_memory_mib=1024,
    component_memory_factor=2.2,
    doc="Merges a LoRA adapter into the weights of its model, which keep their dtype; of a reward"
    " adapter, also the scoring head. The tokenizer and generation settings stay the model's. Use"
    " it for adapters that `llm.generate` cannot serve directly (DoRA, rank above 64, modules saved"
    " whole), and for models that you want to use outside of FlowMesh.",
    examples=("inputs: {model: inputs.base, adapter: tune.adapter}",),
)

CONTRACTS = (MERGE,)
