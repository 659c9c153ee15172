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
    outputs=(Port("rows", PortKind.DATASET, doc="The result."),),
    params=(
        Param(
            "query",
            ParamType.STRING,
            required=True,
            format="sql",
            doc="One SELECT of DuckDB's SQL. Order rows where their order matters (`order by all`);"
            " `random()`, `now()`, files and the network are refused.",
        ),
    ),
    work_unit="rows",
    base_memory_mib=512,
    doc="Answers a query over its inputs with DuckDB on one thread, so that sums of floats repeat.",
    examples=(
        'with: {query: "select question, count(*) as n from rows group by all order by all"}',
    ),
)

CONTRACTS = (SQL,)
