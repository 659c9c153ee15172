"""Contracts of the engines that score rows."""

from flowmesh_core.catalog.contract import (
    EngineContract,
    Param,
    ParamType,
    Port,
    PortKind,
    Reduction,
)

EXACT_MATCH = EngineContract(
    name="eval.exact-match",
    version=1,
    implementation=1,
    inputs=(Port("rows", PortKind.DATASET, doc="Rows with a prediction and a target."),),
    outputs=(
        Port(
            "metrics",
            PortKind.METRICS,
            reduction=Reduction.MEAN_BY_COUNT,
            doc="`accuracy` in [0, 1], and `count`, the rows it is over.",
        ),
        Port("rows", PortKind.DATASET, doc="The input's columns and `correct`."),
    ),
    params=(
        Param(
            "prediction", ParamType.STRING, required=True, columns="one", doc="The column to judge."
        ),
        Param(
            "target", ParamType.STRING, required=True, columns="one", doc="The column it should be."
        ),
        Param(
            "normalize",
            ParamType.BOOLEAN,
            default=False,
            doc="Compare without case, punctuation and white space at the ends.",
        ),
    ),
    row_wise="rows",
    row_output="rows",
    adds_columns=("correct",),
    work_unit="rows",
    doc="Counts the rows whose prediction equals the target.",
    examples=("with: {prediction: answer, target: target}",),
)

CONTRACTS = (EXACT_MATCH,)
