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
    doc="The configuration of a Hugging Face data set to read; may be empty if the data set has"
    " only one.",
)
_SPLIT = Param(
    "split",
    ParamType.STRING,
    default="",
    added=1,
    doc="The split of a Hugging Face data set to read; may be empty if the data set has only one.",
)
_REVISION = Param(
    "revision",
    ParamType.STRING,
    default="",
    doc="A fixed revision; empty if the port `pin` gives it, or if the URI alone determines the"
    " content.",
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
    outputs=(Port("pin", PortKind.BLOB, doc="What the URI resolves to now, as JSON."),),
    params=(
        _URI,
        Param(
            "kind",
            ParamType.STRING,
            required=True,
            choices=("model", "dataset", "adapter"),
            doc="What to import.",
        ),
        _CONFIG,
        _SPLIT,
        Param(
            "sizes",
            ParamType.BOOLEAN,
            default=False,
            added=2,
            doc="Whether the pin of a Hugging Face model also has its size in bytes, which"
            " forecasts need.",
        ),
    ),
    minor=2,
    determinism=Determinism.EXTERNAL,
    work_unit="actions",
    capacity=8,
    base_memory_mib=64,
    doc="Resolves an external name to a revision, once per run. For a Hugging Face data set it also"
    " finds the files of a configuration and split.",
)

MODEL = EngineContract(
    name="model.import",
    version=1,
    implementation=1,
    default_timeout_s=30 * MINUTE_S,
    max_timeout_s=24 * HOUR_S,
    inputs=(_PIN,),
    outputs=(
        Port(
            "model",
            PortKind.MODEL,
            doc="The model as a Hugging Face directory, with weights in safetensors.",
        ),
    ),
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
    outputs=(Port("rows", PortKind.DATASET, doc="The imported rows."),),
    params=(
        _URI,
        _REVISION,
        Param(
            "format",
            ParamType.STRING,
            default="auto",
            choices=("auto", "jsonl", "json", "csv", "parquet"),
            doc="The format of the file; `auto` chooses by its name.",
        ),
        _CONFIG,
        _SPLIT,
        Param(
            "limit",
            ParamType.INTEGER,
            minimum=1,
            added=1,
            doc="The maximum number of rows to take, from the first one on. Files with only later"
            " rows are not fetched.",
        ),
        Param(
            "columns",
            ParamType.LIST,
            columns="many",
            added=1,
            doc="The columns to take; null takes all.",
        ),
    ),
    minor=1,
    work_unit="bytes",
    base_memory_mib=512,
    doc="Fetches a data set, or some of its rows and columns, and cuts it into chunks.",
)

CONTRACTS = (RESOLVE, MODEL, DATASET)
