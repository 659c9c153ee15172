"""Checks that need the columns of the rows: templates and names of columns.

Known at admission are the columns of rows written in the file, of files that the CLI has read, and
those that row-wise engines add to them. The worker checks all others before the engine loads.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from flowmesh_core.catalog.contract import EngineContract, Param
from flowmesh_core.catalog.sql_rules import UnsoundQueryError, refuse_unsound
from flowmesh_core.catalog.templates import undeclared
from flowmesh_core.catalog.verifiers import FORMAT as VERIFIERS
from flowmesh_core.graph.chat_checks import chat_problems
from flowmesh_core.graph.compile_context import Columns, CompileContext, Keys
from flowmesh_core.graph.python_code import python_problem
from flowmesh_core.graph.schemas import schema_problem
from flowmesh_core.graph.verifiers import verifier_problems
from flowmesh_core.spec.fields import NAME_PATTERN, PATTERN_WORDS
from flowmesh_core.spec.suggestions import did_you_mean


def output_columns(
    contract: EngineContract, params: Mapping[str, Any], inputs: Mapping[str, Columns]
) -> Columns:
    """Returns the columns of the step's rows, or None where they are not known.

    Args:
        contract: the step's contract.
        params: its typed parameters.
        inputs: the columns of its data sets, by port.
    """
    if not contract.row_output:
        return None
    columns = inputs.get(contract.row_wise)
    if columns is None:
        return None
    added = (params.get(c[1:]) if c.startswith("$") else c for c in contract.adds_columns)
    return columns | {str(a) for a in added if a is not None}


def check_params(
    scope: CompileContext,
    contract: EngineContract,
    params: Mapping[str, Any],
    fields: Mapping[str, Any],
    inputs: Mapping[str, Columns],
    texts: frozenset[str],
    keys: Keys,
) -> None:
    """Reports templates, column names, queries and programs that cannot work.

    Args:
        scope: the compilation.
        contract: the step's contract.
        params: its typed parameters.
        fields: its identity fields.
        inputs: the columns of its data sets, by port; None where unknown.
        texts: columns of its rows that are known to hold texts.
        keys: where ``with`` is.
    """
    columns = inputs.get(contract.row_port)
    for param in contract.params:
        value = params[param.name]
        if value is None:
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
        for inner, problem in chat_problems(param, value, fields, texts):
            scope.report((*at, *inner), problem)
        if param.format == "sql":
            _check_query(scope, value, inputs, at)


def _check_format(
    scope: CompileContext, param: Param, value: Any, columns: Columns, keys: Keys
) -> None:
    if param.format == VERIFIERS:
        for inner, problem in verifier_problems(value, columns):
            scope.report((*keys, *inner), problem)
    problem = _format_problem(param, value)
    if problem:
        scope.report(keys, problem)


def _check_query(
    scope: CompileContext, query: str, inputs: Mapping[str, Columns], keys: Keys
) -> None:
    try:
        refuse_unsound(query, inputs)
    except UnsoundQueryError as e:
        scope.report(keys, f"{e.message}; {e.remedy}")


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


def _format_problem(param: Param, value: Any) -> str:
    if param.format == "json-schema":
        return schema_problem(value)
    if param.format == "python":
        return python_problem(value)
    if param.format == "regex":
        try:
            re.compile(value)
        except (re.error, RecursionError, OverflowError) as e:
            return f"not a regular expression: {e}"
    if param.format == "secret" and not re.fullmatch(NAME_PATTERN, value):
        return f"expected {PATTERN_WORDS[NAME_PATTERN]}"
    return ""
