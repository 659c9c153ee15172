"""The engine's contract. `fmesh` and the control plane load it, so it imports nothing heavy."""

from flowmesh_core.catalog.contract import (
    EngineContract,
    Param,
    ParamType,
    Port,
    PortKind,
    Reduction,
)

WORD_COUNT = EngineContract(
    name="text.word-count",
    version=1,  # raise it when ports or parameters change
    implementation=1,  # raise it when results change: published ones are then no longer reused
    inputs=(Port("rows", PortKind.DATASET, doc="The rows to process, one at a time."),),
    outputs=(
        Port("rows", PortKind.DATASET, doc="The input's columns and the count."),
        Port(
            "metrics",
            PortKind.METRICS,
            reduction=Reduction.SUM,  # the step's metrics are the sum of its chunks'
            doc="`words`, of all rows.",
        ),
    ),
    params=(
        Param("column", ParamType.STRING, required=True, columns="one", doc="Where the text is."),
        Param("output", ParamType.STRING, default="words", doc="The count's column."),
    ),
    row_wise="rows",  # each chunk of the rows is an action, executed and reused by itself
    row_output="rows",
    adds_columns=("$output",),
    work_unit="rows",
    capacity=4,
    base_memory_mib=128,
    doc="Counts the words of a column.",
    examples=("with: {column: question}",),
)


def contracts() -> tuple[EngineContract, ...]:
    """The entry point of the group `flowmesh.contracts`."""
    return (WORD_COUNT,)
