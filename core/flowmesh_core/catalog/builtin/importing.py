"""Contracts of the engines that import content from outside.

Users write these as ``spec.inputs``; the compiler turns each into steps. A name whose content may
change is first resolved to a pin (``external``); content fetched by a pin or a fixed revision is
``exact``, and so shared.
"""

from flowmesh_core.catalog.contract import (
    Determinism,
    EngineContract,
    Param,
    ParamType,
    Port,
    PortKind,
)
from flowmesh_core.catalog.timeouts import HOUR_S, MINUTE_S

STORED = "stored:"
"""The URI of rows that are in the store already and come on the port ``rows``."""
_URI = Param(
    "uri",
    ParamType.STRING,
    required=True,
    doc="`builtin:name`, `hf://org/name`, `hf://datasets/org/name/file`, `s3://bucket/key` or"
    " `https://host/path`.",
)
_CONFIG = Param(
    "config",
    ParamType.STRING,
    default="",
    added=1,
    doc="Which configuration of a hub's data set to read; empty where it has one.",
)
_SPLIT = Param(
    "split",
    ParamType.STRING,
    default="",
    added=1,
    doc="Which split of a hub's data set to read; empty where it has one.",
)
_REVISION = Param(
    "revision",
    ParamType.STRING,
    default="",
    doc="A fixed revision; empty where the port `pin` has it, or the URI alone fixes the content.",
)
_PIN = Port(
    "pin",
    PortKind.BLOB,
    required=False,
    doc="What the URI was resolved to, as JSON: the revision, and the size and digest if known.",
)

RESOLVE = EngineContract(
    name="source.resolve",
    version=1,
    implementation=1,
    default_timeout_s=30 * MINUTE_S,
    max_timeout_s=24 * HOUR_S,
    inputs=(),
    outputs=(Port("pin", PortKind.BLOB, doc="What the URI means now, as JSON."),),
    params=(
        _URI,
        Param(
            "kind",
            ParamType.STRING,
            required=True,
            choices=("model", "dataset", "adapter"),
            doc="What is imported.",
        ),
        _CONFIG,
        _SPLIT,
        Param(
            "sizes",
            ParamType.BOOLEAN,
            default=False,
            added=2,
            doc="Whether the pin of a hub's model has its bytes too, as forecasts want them.",
        ),
    ),
    minor=2,
    determinism=Determinism.EXTERNAL,
    work_unit="actions",
    capacity=8,
    base_memory_mib=64,
    doc="Resolves a name outside to a revision, once a run; of a hub's data set also the files of a"
    " configuration and a split.",
)

MODEL = EngineContract(
    name="model.import",
    version=1,
    implementation=1,
    default_timeout_s=30 * MINUTE_S,
    max_timeout_s=24 * HOUR_S,
    inputs=(_PIN,),
    outputs=(Port("model", PortKind.MODEL, doc="A Hugging Face directory, safetensors inside."),),
    params=(_URI, _REVISION),
    work_unit="bytes",
    base_memory_mib=2048,
    doc="Fetches a model and converts it to a Hugging Face directory.",
)

DATASET = EngineContract(
    name="dataset.import",
    version=1,
    implementation=2,
    default_timeout_s=30 * MINUTE_S,
    max_timeout_s=24 * HOUR_S,
    inputs=(
        _PIN,
        Port(
            "rows",
            PortKind.DATASET,
            required=False,
            doc="Stored rows to select from, with the URI `stored:`.",
        ),
    ),
    outputs=(Port("rows", PortKind.DATASET, doc="The rows."),),
    params=(
        _URI,
        _REVISION,
        Param(
            "format",
            ParamType.STRING,
            default="auto",
            choices=("auto", "jsonl", "json", "csv", "parquet"),
            doc="The file's format; `auto` goes by its name.",
        ),
        _CONFIG,
        _SPLIT,
        Param(
            "limit",
            ParamType.INTEGER,
            minimum=1,
            added=1,
            doc="The most rows to take, from the first on; files beyond them are not fetched.",
        ),
        Param(
            "columns",
            ParamType.LIST,
            columns="many",
            added=1,
            doc="The columns to take; null is all.",
        ),
    ),
    minor=1,
    work_unit="bytes",
    base_memory_mib=512,
    doc="Fetches a data set, or some of its rows and columns, and cuts it into chunks.",
)

CONTRACTS = (RESOLVE, MODEL, DATASET)
