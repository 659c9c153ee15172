"""Contracts used by the tests of identity."""

from flowmesh_core.catalog.contract import EngineContract, Param, ParamType, Port, PortKind

GENERATE = EngineContract(
    name="llm.generate",
    version=1,
    implementation=3,
    inputs=(
        Port("model", PortKind.MODEL, component=True),
        Port("adapter", PortKind.ADAPTER, required=False, component=True, mixable=True),
        Port("rows", PortKind.DATASET),
    ),
    outputs=(Port("rows", PortKind.DATASET),),
    params=(
        Param("prompt", ParamType.STRING, required=True, template="jinja"),
        Param("samples", ParamType.INTEGER, 1, minimum=1, maximum=1024),
        Param("temperature", ParamType.NUMBER, 1, minimum=0),
        Param("maxTokens", ParamType.INTEGER, 64, minimum=1),
        Param("seed", ParamType.INTEGER, 0),
        Param("stop", ParamType.LIST, []),
        Param("schema", ParamType.OBJECT),
        Param("guided", ParamType.STRING, "none", choices=("none", "json")),
        Param("logprobs", ParamType.BOOLEAN, False),
        Param("maxModelLen", ParamType.INTEGER, 512, batch_wide=True),
    ),
    identity_fields=("dtype", "batchInvariant", "implementation", "tensorParallel"),
    row_wise="rows",
    row_output="rows",
)

SQL = EngineContract(
    name="data.sql",
    version=1,
    implementation=1,
    inputs=(Port("*", PortKind.DATASET),),
    outputs=(Port("rows", PortKind.DATASET),),
    params=(Param("query", ParamType.STRING, required=True),),
)
