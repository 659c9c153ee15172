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
            doc="Tables for the query. The name of an input is the name of its table.",
        ),
    ),
    outputs=(
        Port("rows", PortKind.DATASET, doc="The result of the query."),
        Port(
            "metrics",
            PortKind.METRICS,
            only_with=("metrics", True),
            row_of="rows",
            doc="The single row of the result, with one metric for each column.",
        ),
    ),
    params=(
        Param(
            "query",
            ParamType.STRING,
            required=True,
            format="sql",
            doc="One SELECT statement in DuckDB's SQL. If the order of rows matters, add `order by`"
            " (such as `order by all`). `random()`, `now()`, files and the network are refused.",
        ),
        Param(
            "metrics",
            ParamType.BOOLEAN,
            default=False,
            added=1,
            doc="Also return the result, which must be one row, as metrics that conditions can"
            " read.",
        ),
    ),
    minor=1,
    work_unit="rows",
    base_memory_mib=512,
    doc="Runs a SQL query over its inputs with DuckDB, on one thread so that sums of floats are"
    " reproducible.",
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
            doc="The metrics of a step, those of all instances of a matrix (`exam[*].metrics`), or"
            " a list of such sources.",
        ),
    ),
    outputs=(
        Port(
            "rows",
            PortKind.DATASET,
            doc="One row for each instance, in the order of declaration, with its matrix values and"
            " its metrics. Values that an instance does not have are null. Skipped instances are"
            " left out.",
        ),
    ),
    work_unit="rows",
    capacity=16,
    base_memory_mib=128,
    doc="Turns metrics into rows, for example to rank the instances of a matrix with `data.sql`.",
    examples=("inputs: {metrics: 'exam[*].metrics'}",),
)

CONTRACTS = (SQL, METRICS)
