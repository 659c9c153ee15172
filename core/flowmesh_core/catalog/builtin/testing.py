"""Contracts of the engines for tests and benchmarks, which need no model."""

from flowmesh_core.catalog.contract import (
    EngineContract,
    Param,
    ParamType,
    Port,
    PortKind,
    Reduction,
)
from flowmesh_core.errors import FailureKind

_ANY_METRICS = Port("*", PortKind.METRICS, required=False, doc="Anything to wait for.")
_METRICS = Port("metrics", PortKind.METRICS, doc="`{value: ...}`, the parameter.")
_VALUE = Param("value", ParamType.ANY, doc="Returned as it is.")
_PROCESS_ENDS = ("crash", "kill", "hang")

NOOP = EngineContract(
    name="test.noop",
    version=1,
    implementation=1,
    inputs=(_ANY_METRICS,),
    outputs=(_METRICS,),
    params=(_VALUE,),
    work_unit="actions",
    capacity=256,
    base_memory_mib=64,
    doc="Does nothing.",
)

ECHO = EngineContract(
    name="test.echo",
    version=1,
    implementation=1,
    inputs=(
        _ANY_METRICS,
        Port("model", PortKind.MODEL, required=False, component=True, doc="Loaded and not used."),
    ),
    outputs=(_METRICS,),
    params=(_VALUE,),
    work_unit="tokens",
    capacity=256,
    base_memory_mib=64,
    doc="Does nothing. As a replica of a service it answers a request with its own text.",
)

SLEEP = EngineContract(
    name="test.sleep",
    version=1,
    implementation=1,
    inputs=(_ANY_METRICS,),
    outputs=(_METRICS,),
    params=(
        Param("seconds", ParamType.NUMBER, required=True, minimum=0, doc="How long to wait."),
        _VALUE,
    ),
    work_unit="actions",
    capacity=256,
    base_memory_mib=64,
    doc="Waits.",
)

STEPS = EngineContract(
    name="test.steps",
    version=1,
    implementation=1,
    inputs=(_ANY_METRICS,),
    outputs=(
        Port(
            "metrics",
            PortKind.METRICS,
            doc="`value`, the parameter, and `chain`, a digest that follows from every step.",
        ),
    ),
    params=(
        Param("steps", ParamType.INTEGER, required=True, minimum=0, doc="How far to count."),
        Param(
            "stepSeconds", ParamType.NUMBER, default=0.0, minimum=0, doc="How long a step takes."
        ),
        Param(
            "checkpointEvery",
            ParamType.INTEGER,
            default=0,
            minimum=0,
            doc="Steps between two checkpoints; 0 keeps none.",
        ),
        _VALUE,
    ),
    work_unit="steps",
    capacity=256,
    base_memory_mib=64,
    doc="Counts in steps and keeps checkpoints. Its usage counts the steps of the last attempt.",
)

MAP = EngineContract(
    name="test.map",
    version=1,
    implementation=1,
    inputs=(Port("rows", PortKind.DATASET, doc="The rows to work on, one by one."),),
    outputs=(
        Port("rows", PortKind.DATASET, doc="The input's columns and the added one."),
        Port(
            "metrics",
            PortKind.METRICS,
            reduction=Reduction.SUM,
            doc="`count`, of rows; over all chunks the sum.",
        ),
    ),
    params=(
        Param("output", ParamType.STRING, default="mapped", doc="The added column."),
        Param("value", ParamType.ANY, doc="Enters the added column beside the row."),
    ),
    row_wise="rows",
    row_output="rows",
    adds_columns=("$output:string",),
    work_unit="rows",
    capacity=256,
    base_memory_mib=128,
    doc="Adds a column whose value follows from the row: its digest.",
)

FAIL = EngineContract(
    name="test.fail",
    version=1,
    implementation=1,
    inputs=(_ANY_METRICS,),
    outputs=(_METRICS,),
    params=(
        Param(
            "kind",
            ParamType.STRING,
            default="engine",
            choices=(*(k.value for k in FailureKind), *_PROCESS_ENDS),
            doc="The kind of failure; `crash` exits the host, `kill` kills it, `hang` never ends.",
        ),
        Param("message", ParamType.STRING, default="asked to fail", doc="The failure's message."),
        _VALUE,
    ),
    work_unit="actions",
    capacity=1,
    base_memory_mib=64,
    doc="Fails.",
)

DRIFT = EngineContract(
    name="test.drift",
    version=1,
    implementation=1,
    inputs=(_ANY_METRICS,),
    outputs=(
        Port("metrics", PortKind.METRICS, doc="`value`, and `drift`, another text each time."),
    ),
    params=(
        Param(
            "family", ParamType.STRING, default="", batch_wide=True, doc="Part of the signature."
        ),
        _VALUE,
    ),
    work_unit="actions",
    capacity=256,
    base_memory_mib=64,
    doc="Declares that it repeats, and does not: what audits are to find.",
)

OPENAI = EngineContract(
    name="test.openai",
    version=1,
    implementation=1,
    inputs=(Port("rows", PortKind.DATASET, doc="Requests to OpenAI's API, `{url, body}`."),),
    outputs=(
        Port("rows", PortKind.DATASET, doc="The input's columns and the response."),
        Port(
            "metrics",
            PortKind.METRICS,
            reduction=Reduction.SUM,
            doc="`completed` and `failed`, numbers of rows.",
        ),
    ),
    params=(
        Param("url", ParamType.STRING, default="url", columns="one", doc="The path's column."),
        Param("body", ParamType.STRING, default="body", columns="one", doc="The body's column."),
        Param("output", ParamType.STRING, default="response", doc="The response's column."),
    ),
    row_wise="rows",
    row_output="rows",
    adds_columns=("$output:json",),
    work_unit="tokens",
    capacity=64,
    base_memory_mib=512,
    doc="Answers requests as `llm.openai` does, without a model: with the last message, and a"
    " millisecond for each of `max_tokens`.",
)

CONTRACTS = (NOOP, ECHO, DRIFT, SLEEP, STEPS, MAP, FAIL, OPENAI)
