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
            doc="Data sets under names of your choice; the function gets them by name.",
        ),
    ),
    outputs=(
        Port("rows", PortKind.DATASET, doc="The rows that the function returns."),
        Port(
            "metrics",
            PortKind.METRICS,
            metrics=(Metric("{metrics}"),),
            doc="The metrics that it returns beside them; empty where it returns none.",
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
            doc="Called with one list of rows (dicts) an input, by keyword, and with `args`'"
            " entries. Returns rows, or rows and a dict of metrics.",
        ),
        Param("args", ParamType.OBJECT, default={}, doc="More keyword arguments."),
        Param(
            "timeoutS", ParamType.NUMBER, default=60.0, minimum=0.1, maximum=86_400, doc="Seconds."
        ),
        Param(
            "memoryMib",
            ParamType.INTEGER,
            default=512,
            minimum=64,
            maximum=1_048_576,
            doc="Memory that the code may use.",
        ),
        Param(
            "metrics",
            ParamType.OBJECT,
            format="metrics",
            added=1,
            doc="The metrics that it returns, each with its type: number, integer, boolean or"
            " string. Conditions can then read no others, and a run in which one is missing fails.",
        ),
    ),
    minor=1,
    work_unit="rows",
    user_code=True,
    base_memory_mib=640,
    doc="Runs the user's Python over whole data sets, in a process of its own without network,"
    " credentials or files. Code is taken to be exact: set a seed, or `cache.reuse: never`, where"
    " it is not.",
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
            doc="The components: name, code, function and batchMax of each.",
        ),
        Param(
            "namespace",
            ParamType.STRING,
            default="",
            batch_wide=True,
            doc="Whose code it is: a host runs that of one namespace.",
        ),
        Param(
            "trusted",
            ParamType.BOOLEAN,
            default=False,
            batch_wide=True,
            doc="Whether the code runs outside the sandbox, on workers that allow it.",
        ),
        Param(
            "memoryMib",
            ParamType.INTEGER,
            default=COMPONENT_MEMORY_MIB,
            minimum=64,
            maximum=1_048_576,
            batch_wide=True,
            doc="Memory that the code may use.",
        ),
        Param(
            "onLate",
            ParamType.STRING,
            default="demote",
            choices=("refuse", "demote", "serve"),
            batch_wide=True,
            doc="What becomes of a call that cannot be in time.",
        ),
    ),
    work_unit="actions",
    user_code=True,
    base_memory_mib=640,
    doc="Hosts the Python components of a service. It answers stages of services alone; a step of a"
    " workflow uses code.python.",
)

CONTRACTS = (PYTHON, COMPONENT)
