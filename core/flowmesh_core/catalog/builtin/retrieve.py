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
        Port("rows", PortKind.DATASET, doc="Queries, each with a vector."),
        Port(
            "corpus",
            PortKind.DATASET,
            doc="What to search: rows with vectors as long.",
            resident=True,
        ),
    ),
    outputs=(
        Port(
            "rows",
            PortKind.DATASET,
            doc="The queries' columns, and what was found: a list of {row, score, ...} in `output`,"
            " nearest first, `row` being the place in the corpus, counted from 0.",
        ),
    ),
    params=(
        Param(
            "vector",
            ParamType.STRING,
            default="embedding",
            columns="one",
            doc="The queries' column of vectors, as llm.embed makes it.",
        ),
        Param(
            "corpusVector",
            ParamType.STRING,
            default="embedding",
            doc="The corpus's column of vectors.",
        ),
        Param(
            "k",
            ParamType.INTEGER,
            default=5,
            minimum=1,
            maximum=10_000,
            doc="How many rows to find for a query; at most as many as the corpus has.",
        ),
        Param(
            "metric",
            ParamType.STRING,
            default="cosine",
            choices=("cosine", "dot", "l2"),
            doc="What `score` is: the cosine or the dot product, greatest first, or the Euclidean"
            " distance, least first. Equal scores stand in the corpus's order.",
        ),
        Param("output", ParamType.STRING, default="found", doc="The column of what was found."),
        Param(
            "columns",
            ParamType.LIST,
            default=[],
            doc="Columns of the corpus to put into each found object.",
        ),
        Param(
            "context",
            ParamType.STRING,
            doc="One more column: the found rows' texts in one, for a prompt's template. Needs"
            " `join`.",
        ),
        Param("join", ParamType.STRING, doc="The corpus's column whose texts make up `context`."),
        Param("separator", ParamType.STRING, default="\n", doc="What stands between those texts."),
    ),
    row_wise="rows",
    row_output="rows",
    adds_columns=("$output:json", "$context:string"),
    work_unit="rows",
    base_memory_mib=512,
    component_memory_factor=3.0,
    doc="Finds the corpus's rows nearest to every query, by exact search: no index, and scores that"
    " depend neither on the batch nor on the machine.",
    examples=(
        "with: {k: 3, columns: [title], context: context, join: text}",
        "with: {vector: question_vector, corpusVector: vector, metric: l2, k: 1}",
    ),
)

CONTRACTS = (TOPK,)
"""Contracts of engines that find rows."""
