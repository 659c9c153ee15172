"""Checks that need the columns of the rows: templates and names of columns.

Known at admission are the columns of rows written in the file, of files that the CLI has read, and
those that row-wise engines add to them. The worker checks all others before the engine loads.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from flowmesh_core.catalog.contract import EngineContract, Param
from flowmesh_core.catalog.patterns import pattern_problem
from flowmesh_core.catalog.resolved_contract import added_columns
from flowmesh_core.catalog.sql_rules import UnsoundQueryError, refuse_unsound
from flowmesh_core.catalog.templates import undeclared
from flowmesh_core.catalog.verifiers import FORMAT as VERIFIERS
from flowmesh_core.dataset.schema import ColumnType
from flowmesh_core.dataset.sql_binding import bound_columns
from flowmesh_core.graph.chat_checks import chat_problems
from flowmesh_core.graph.compile_context import Columns, CompileContext, EmptyRows, Keys
from flowmesh_core.graph.plan import ABSENT, StepPlan
from flowmesh_core.graph.python_code import can_leave_out, python_problem
from flowmesh_core.graph.schemas import schema_problem
from flowmesh_core.graph.verifiers import verifier_problems
from flowmesh_core.spec.error_messages import describe
from flowmesh_core.spec.fields import NAME_PATTERN, PATTERN_WORDS
from flowmesh_core.spec.suggestions import did_you_mean

SQL = "sql"
"""The format of a parameter that is a query over the step's inputs."""
_BOUND_MAX = 1000
"""Different queries of a workflow that are bound, at a few milliseconds each; workers bind all."""
_METRIC_TYPES = ("number", "integer", "boolean", "string")


def output_columns(
    contract: EngineContract, params: Mapping[str, Any], inputs: Mapping[str, Columns]
) -> Columns:
    """Returns the columns of a row-wise step's rows, or None where they are not known.

    Args:
        contract: the step's contract.
        params: its typed parameters.
        inputs: the columns of its data sets, by port.
    """
    columns = inputs.get(contract.row_wise)
    if columns is None:
        return None
    added = added_columns(contract, params)
    return {**columns, **{n: ColumnType(kind) if kind else None for n, kind in added.items()}}


def query_columns(
    scope: CompileContext,
    query: str,
    inputs: Mapping[str, Columns],
    bare: Mapping[str, EmptyRows],
    keys: Keys,
) -> Columns:
    """Returns the columns of a query's result, or None; reports what is wrong with the query.

    Args:
        scope: the compilation.
        query: what the user wrote.
        inputs: the columns of its tables.
        bare: its tables without rows.
        keys: where it is.
    """
    inner = {**inputs, **{name: rows.columns for name, rows in bare.items()}}
    tables = {name: _typed(columns) for name, columns in inner.items()}
    known = {name: columns for name, columns in tables.items() if columns is not None}
    asked = (query, tuple((n, None if c is None else (*c.items(),)) for n, c in tables.items()))
    unbound = False
    try:
        if asked not in scope.bound_queries:
            refuse_unsound(query, inputs)
            unbound = bool(bare)
            bind = len(known) == len(tables) and len(scope.bound_queries) < _BOUND_MAX
            scope.bound_queries[asked] = bound_columns(query, known) if bind else None
        return scope.bound_queries[asked]
    except UnsoundQueryError as e:
        empty = ", ".join(f"{name!r} comes from {rows.origin}" for name, rows in bare.items())
        no_rows = f"{empty}, which has 0 rows and so no columns: add rows, or a `when` to this step"
        scope.report(keys, f"{e.message}; {no_rows if unbound else e.remedy}")
        return None


def _typed(columns: Columns) -> dict[str, ColumnType] | None:
    if columns is None or any(kind is None for kind in columns.values()):
        return None
    return {name: kind for name, kind in columns.items() if kind is not None}


def check_params(
    scope: CompileContext,
    contract: EngineContract,
    step: StepPlan,
    inputs: Mapping[str, Columns],
    keys: Keys,
) -> None:
    """Reports templates, column names and programs that cannot work.

    Args:
        scope: the compilation.
        contract: the step's contract.
        step: the step, with its typed parameters and fields.
        inputs: the columns of its data sets, by port; None where unknown.
        keys: where ``with`` is.
    """
    columns, params = inputs.get(contract.row_port), step.params
    texts = {name for name, kind in (columns or {}).items() if kind is ColumnType.STRING}
    for param in contract.params:
        value = params[param.name]
        if value is None or param.format == SQL:
            continue
        at = (*keys, param.name)
        if param.template:
            for inner, text in _strings(value, at):
                _check_template(scope, text, columns, inner)
        if param.columns and columns is not None:
            for name in [value] if isinstance(value, str) else value:
                if name not in columns:
                    scope.report(
                        at,
                        f"no column {name!r} in the rows{did_you_mean(str(name), sorted(columns))}",
                    )
        _check_format(scope, param, value, columns, at)
        for inner, problem in chat_problems(param, value, step.fields, texts):
            scope.report((*at, *inner), problem)
        if param.format == "python":
            _check_absent(scope, step, value, keys)


def _check_absent(scope: CompileContext, step: StepPlan, code: str, keys: Keys) -> None:
    """Reports inputs that may be absent, and that the program does not do without."""
    absent = [edge.port for edge in step.edges if edge.when_skipped == ABSENT]
    if not absent or python_problem(code):
        return
    function = str(step.params.get("function") or "main")
    for name in absent:
        if not can_leave_out(code, function, name):
            scope.report(
                (*keys[:-1], "inputs", name),
                f"{function}() needs {name!r}, which may be absent: give it a default",
            )


def _check_format(
    scope: CompileContext, param: Param, value: Any, columns: Columns, keys: Keys
) -> None:
    if param.format == VERIFIERS:
        for inner, problem in verifier_problems(value, columns):
            scope.report((*keys, *inner), problem)
    problem = _format_problem(param, value)
    if problem:
        scope.report(keys, problem)


def _check_template(scope: CompileContext, text: str, columns: Columns, keys: Keys) -> None:
    problem, names = undeclared(text)
    if problem:
        scope.report(keys, problem)
    for name in names:
        if columns is not None and name not in columns:
            scope.report(
                keys,
                f"the template names {name!r}, and the rows have no such column"
                f"{did_you_mean(name, sorted(columns))}",
            )


def _strings(value: Any, keys: Keys) -> Iterator[tuple[Keys, str]]:
    if isinstance(value, str):
        yield keys, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _strings(inner, (*keys, key))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from _strings(inner, (*keys, i))


def _metrics_problem(value: Mapping[str, Any]) -> str:
    for name, kind in value.items():
        if kind not in _METRIC_TYPES:
            return f"in {name}: expected one of {', '.join(_METRIC_TYPES)}, got {describe(kind)}"
    return "" if value else "expected at least one metric with its type, as {mean_words: number}"


def _format_problem(param: Param, value: Any) -> str:
    if param.format == "json-schema":
        return schema_problem(value)
    if param.format == "python":
        return python_problem(value)
    if param.format == "metrics":
        return _metrics_problem(value)
    if param.format == "regex":
        return pattern_problem(value)
    if param.format == "secret" and not re.fullmatch(NAME_PATTERN, value):
        return f"expected {PATTERN_WORDS[NAME_PATTERN]}"
    return ""
