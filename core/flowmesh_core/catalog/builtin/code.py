"""Contracts of the engines that run the user's code."""

from flowmesh_core.catalog.contract import (
    EngineContract,
    Metric,
    Param,
    ParamType,
    Port,
    PortKind,
)
from flowmesh_core.catalog.timeouts import HOUR_S, MINUTE_S

PYTHON = EngineContract(
    name="code.python",
    version=1,
    implementation=2,
    default_timeout_s=10 * MINUTE_S,
    max_timeout_s=24 * HOUR_S,
    timeout_param="timeoutS",
    inputs=(
        Port(
            "*",
            PortKind.DATASET,
            required=False,
            doc="Data sets under names of your choice; the function gets each as the argument of"
            " that name.",
        ),
    ),
    outputs=(
        Port("rows", PortKind.DATASET, doc="The rows that the function returns."),
        Port(
            "metrics",
            PortKind.METRICS,
            metrics=(Metric("{metrics}"),),
            doc="The metrics that the function returns; empty if it returns none.",
        ),
    ),
    params=(
        Param(
            "code",
            ParamType.STRING,
            required=True,
            format="python",
            doc="A Python module that defines the function.",
        ),
        Param(
            "function",
            ParamType.STRING,
            default="main",
            doc="The function to call. Its keyword arguments are the inputs, each as a list of rows"
            " (dicts), and the entries of `args`. It returns rows, or rows and a dict of metrics.",
        ),
        Param("args", ParamType.OBJECT, default={}, doc="Further keyword arguments."),
        Param(
            "timeoutS",
            ParamType.NUMBER,
            default=60.0,
            minimum=0.1,
            maximum=86_400,
            doc="The time limit of the code, in seconds.",
        ),
        Param(
            "memoryMib",
            ParamType.INTEGER,
            default=512,
            minimum=64,
            maximum=1_048_576,
            doc="Memory that the code may use, in MiB.",
        ),
        Param(
            "metrics",
            ParamType.OBJECT,
            format="metrics",
            added=1,
            doc="The metrics that the function returns, each with its type: number, integer,"
            " boolean or string. Conditions can then read only these metrics, and a run fails if"
            " one of them is missing.",
        ),
    ),
    minor=1,
    work_unit="rows",
    user_code=True,
    base_memory_mib=640,
    doc="Runs the user's Python code over whole data sets, in a separate process without network,"
    " credentials or files. The code is assumed to be deterministic (exact). If it is not, set a"
    " seed in it, or set `cache.reuse: never`.",
    examples=("with: {code: \"def main(rows):\\n  return [r for r in rows if r['n'] > 1]\"}",),
)

COMPONENT_MEMORY_MIB = 512
"""What the code of a service's components may use where the service says nothing."""

COMPONENT = EngineContract(
    name="code.component",
    version=1,
    implementation=1,
    default_timeout_s=10 * MINUTE_S,
    max_timeout_s=24 * HOUR_S,
    inputs=(),
    outputs=(),
    params=(
        Param(
            "components",
            ParamType.LIST,
            default=[],
            batch_wide=True,
            doc="The components, each with its name, code, function and batchMax.",
        ),
        Param(
            "namespace",
            ParamType.STRING,
            default="",
            batch_wide=True,
            doc="The namespace that the code belongs to; one host runs the code of only one"
            " namespace.",
        ),
        Param(
            "trusted",
            ParamType.BOOLEAN,
            default=False,
            batch_wide=True,
            doc="Whether to run the code outside the sandbox, on workers that allow it.",
        ),
        Param(
            "memoryMib",
            ParamType.INTEGER,
            default=COMPONENT_MEMORY_MIB,
            minimum=64,
            maximum=1_048_576,
            batch_wide=True,
            doc="Memory that the code may use, in MiB.",
        ),
        Param(
            "onLate",
            ParamType.STRING,
            default="demote",
            choices=("refuse", "demote", "serve"),
            batch_wide=True,
            doc="What to do with a call that cannot meet the service's latency target: `refuse`"
            " ends it with an error, `demote` runs it after all calls that can meet theirs, `serve`"
            " treats it like the others.",
        ),
    ),
    work_unit="actions",
    user_code=True,
    base_memory_mib=640,
    doc="Hosts the Python components of a service. Only services use it; a step of a workflow uses"
    " `code.python`.",
)

CONTRACTS = (PYTHON, COMPONENT)
