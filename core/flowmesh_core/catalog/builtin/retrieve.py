"""Contracts of the engines that find rows by their vectors."""

from flowmesh_core.catalog.contract import EngineContract, Param, ParamType, Port, PortKind
from flowmesh_core.catalog.timeouts import HOUR_S, MINUTE_S

TOPK = EngineContract(
    name="retrieve.topk",
    version=1,
    implementation=1,
    default_timeout_s=10 * MINUTE_S,
    max_timeout_s=24 * HOUR_S,
    inputs=(
        Port("rows", PortKind.DATASET, doc="The queries, each with a vector."),
        Port(
            "corpus",
            PortKind.DATASET,
            doc="The rows to search, with vectors of the same length.",
            resident=True,
        ),
    ),
    outputs=(
        Port(
            "rows",
            PortKind.DATASET,
            doc="The columns of the queries, and a column (named by `output`) with a list of {row,"
            " score, ...}, nearest first. `row` is the index of the found row in the corpus, from"
            " 0.",
        ),
    ),
    params=(
        Param(
            "vector",
            ParamType.STRING,
            default="embedding",
            columns="one",
            doc="The column with the vector of a query, as `llm.embed` makes it.",
        ),
        Param(
            "corpusVector",
            ParamType.STRING,
            default="embedding",
            doc="The column with the vector of a row of the corpus.",
        ),
        Param(
            "k",
            ParamType.INTEGER,
            default=5,
            minimum=1,
            maximum=10_000,
            doc="How many rows to find for each query; all rows if the corpus has fewer.",
        ),
        Param(
            "metric",
            ParamType.STRING,
            default="cosine",
            choices=("cosine", "dot", "l2"),
            doc="How `score` is computed: as the cosine similarity or the dot product (greatest"
            " first), or as the Euclidean distance (least first). Rows with equal scores stay in"
            " the order of the corpus.",
        ),
        Param(
            "output",
            ParamType.STRING,
            default="found",
            doc="The column for the list of found rows.",
        ),
        Param(
            "columns",
            ParamType.LIST,
            default=[],
            doc="Columns of the corpus to include in each entry of that list.",
        ),
        Param(
            "context",
            ParamType.STRING,
            doc="A further column, with the texts of the found rows joined into one, for use in a"
            " prompt template. Needs `join`.",
        ),
        Param(
            "join",
            ParamType.STRING,
            doc="The column of the corpus whose texts are joined into `context`.",
        ),
        Param(
            "separator", ParamType.STRING, default="\n", doc="The separator between those texts."
        ),
    ),
    row_wise="rows",
    row_output="rows",
    adds_columns=("$output:json", "$context:string"),
    work_unit="rows",
    base_memory_mib=512,
    component_memory_factor=3.0,
    doc="Finds the rows of a corpus that are nearest to each query, by exact search without an"
    " index. Scores depend neither on the batch nor on the machine.",
    examples=(
        "with: {k: 3, columns: [title], context: context, join: text}",
        "with: {vector: question_vector, corpusVector: vector, metric: l2, k: 1}",
    ),
)

CONTRACTS = (TOPK,)
"""Contracts of engines that find rows."""
