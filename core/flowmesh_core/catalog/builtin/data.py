"""Contracts of the engines that work on data sets as a whole."""

from flowmesh_core.catalog.contract import EngineContract, Param, ParamType, Port, PortKind
from flowmesh_core.catalog.timeouts import HOUR_S, MINUTE_S

SQL = EngineContract(
    name="data.sql",
    version=1,
    implementation=1,
    default_timeout_s=10 * MINUTE_S,
    max_timeout_s=24 * HOUR_S,
    inputs=(
        Port(
            "*",
            PortKind.DATASET,
            required=False,
            doc="Tables; an input's name is the table's name.",
        ),
    ),
    outputs=(
        Port("rows", PortKind.DATASET, doc="The result."),
        Port(
            "metrics",
            PortKind.METRICS,
            only_with=("metrics", True),
            row_of="rows",
            doc="With `metrics` the one row of the result, a metric a column.",
        ),
    ),
    params=(
        Param(
            "query",
            ParamType.STRING,
            required=True,
            format="sql",
            doc="One SELECT of DuckDB's SQL. Order rows where their order matters (`order by all`);"
            " `random()`, `now()`, files and the network are refused.",
        ),
        Param(
            "metrics",
            ParamType.BOOLEAN,
            default=False,
            added=1,
            doc="Give the result, which must be one row, as metrics too, for conditions to read.",
        ),
    ),
    minor=1,
    work_unit="rows",
    base_memory_mib=512,
    doc="Answers a query over its inputs with DuckDB on one thread, so that sums of floats repeat.",
    examples=(
        'with: {query: "select question, count(*) as n from rows group by all order by all"}',
    ),
)

METRICS = EngineContract(
    name="data.metrics",
    version=1,
    implementation=1,
    default_timeout_s=10 * MINUTE_S,
    max_timeout_s=24 * HOUR_S,
    inputs=(
        Port(
            "metrics",
            PortKind.METRICS,
            collects=True,
            doc="Metrics of a step, of all instances of a matrix (`exam[*].metrics`), or a list of"
            " these.",
        ),
    ),
    outputs=(
        Port(
            "rows",
            PortKind.DATASET,
            doc="One row per instance, in order of declaration: its matrix values and its metrics."
            " What an instance does not have is null; skipped instances are left out.",
        ),
    ),
    work_unit="rows",
    capacity=16,
    base_memory_mib=128,
    doc="Makes rows of metrics, to rank the instances of a matrix with data.sql.",
    examples=("inputs: {metrics: 'exam[*].metrics'}",),
)

CONTRACTS = (SQL, METRICS)
