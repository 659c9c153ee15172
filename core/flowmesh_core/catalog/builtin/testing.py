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

_ANY_METRICS = Port(
    "*", PortKind.METRICS, required=False, doc="Metrics to wait for; they are not used."
)
_METRICS = Port("metrics", PortKind.METRICS, doc="`value`, the parameter.")
_VALUE = Param("value", ParamType.ANY, doc="A value that is returned unchanged.")
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
        Port(
            "model",
            PortKind.MODEL,
            required=False,
            component=True,
            doc="A model that is loaded but not used.",
        ),
    ),
    outputs=(_METRICS,),
    params=(_VALUE,),
    work_unit="tokens",
    capacity=256,
    base_memory_mib=64,
    doc="Does nothing. As a replica of a service it echoes the text of each request.",
)

SLEEP = EngineContract(
    name="test.sleep",
    version=1,
    implementation=1,
    inputs=(_ANY_METRICS,),
    outputs=(_METRICS,),
    params=(
        Param(
            "seconds", ParamType.NUMBER, required=True, minimum=0, doc="How many seconds to wait."
        ),
        _VALUE,
    ),
    work_unit="actions",
    capacity=256,
    base_memory_mib=64,
    doc="Waits for a given time.",
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
            doc="`value`, the parameter, and `chain`, a digest that depends on every step.",
        ),
    ),
    params=(
        Param("steps", ParamType.INTEGER, required=True, minimum=0, doc="The number of steps."),
        Param(
            "stepSeconds",
            ParamType.NUMBER,
            default=0.0,
            minimum=0,
            doc="How many seconds a step takes.",
        ),
        Param(
            "checkpointEvery",
            ParamType.INTEGER,
            default=0,
            minimum=0,
            doc="The number of steps between two checkpoints; 0 writes none.",
        ),
        _VALUE,
    ),
    work_unit="steps",
    capacity=256,
    base_memory_mib=64,
    doc="Counts steps and writes checkpoints. Its usage counts the steps of the last attempt.",
)

MAP = EngineContract(
    name="test.map",
    version=1,
    implementation=1,
    inputs=(Port("rows", PortKind.DATASET, doc="The rows to process, one at a time."),),
    outputs=(
        Port("rows", PortKind.DATASET, doc="The input's columns and the added column."),
        Port(
            "metrics",
            PortKind.METRICS,
            reduction=Reduction.SUM,
            doc="`count`, the number of rows; summed over all chunks.",
        ),
    ),
    params=(
        Param("output", ParamType.STRING, default="mapped", doc="The column to add."),
        Param(
            "value", ParamType.ANY, doc="A value that, like the row, determines the added column."
        ),
    ),
    row_wise="rows",
    row_output="rows",
    adds_columns=("$output:string",),
    work_unit="rows",
    capacity=256,
    base_memory_mib=128,
    doc="Adds a column with a digest of the row.",
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
            doc="The kind of failure. `crash` makes the engine host exit, `kill` kills it, `hang`"
            " never ends.",
        ),
        Param(
            "message", ParamType.STRING, default="asked to fail", doc="The message of the failure."
        ),
        _VALUE,
    ),
    work_unit="actions",
    capacity=1,
    base_memory_mib=64,
    doc="Fails with a given kind of failure.",
)

DRIFT = EngineContract(
    name="test.drift",
    version=1,
    implementation=1,
    inputs=(_ANY_METRICS,),
    outputs=(
        Port("metrics", PortKind.METRICS, doc="`value`, and `drift`, a different text each time."),
    ),
    params=(
        Param(
            "family",
            ParamType.STRING,
            default="",
            batch_wide=True,
            doc="A part of the signature, without any other effect.",
        ),
        _VALUE,
    ),
    work_unit="actions",
    capacity=256,
    base_memory_mib=64,
    doc="Declares itself exact but returns a different result each time, to test that audits find"
    " such engines.",
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
            doc="`completed` and `failed`, the numbers of such rows.",
        ),
    ),
    params=(
        Param(
            "url", ParamType.STRING, default="url", columns="one", doc="The column with the path."
        ),
        Param(
            "body", ParamType.STRING, default="body", columns="one", doc="The column with the body."
        ),
        Param("output", ParamType.STRING, default="response", doc="The column for the response."),
    ),
    row_wise="rows",
    row_output="rows",
    adds_columns=("$output:json",),
    work_unit="tokens",
    capacity=64,
    base_memory_mib=512,
    doc="Answers requests as `llm.openai` does, but without a model: it returns the last message,"
    " after one millisecond for each of `max_tokens`.",
)

CONTRACTS = (NOOP, ECHO, DRIFT, SLEEP, STEPS, MAP, FAIL, OPENAI)
