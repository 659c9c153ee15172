"""Checks lists of verifiers (reward functions, scores) at admission: names, arguments, columns."""

from collections.abc import Iterator, Mapping
from typing import Any

from flowmesh_core.catalog.patterns import pattern_problem
from flowmesh_core.catalog.verifiers import NAME, VERIFIERS, Argument, Verifier
from flowmesh_core.graph.compile_context import Columns
from flowmesh_core.graph.schemas import schema_problem
from flowmesh_core.spec.suggestions import did_you_mean

Problem = tuple[tuple[str | int, ...], str]
"""The place below the parameter, and what is wrong."""


def verifier_problems(checks: Any, columns: Columns) -> Iterator[Problem]:
    """Yields the problems of a list of verifiers.

    Args:
        checks: the parameter's value.
        columns: of the rows; None where unknown.
    """
    for i, check in enumerate(checks):
        if not isinstance(check, Mapping) or not isinstance(check.get(NAME), str):
            yield (i,), "expected a check, such as {name: number-equals, target: answer}"
            continue
        verifier = VERIFIERS.get(check[NAME])
        if verifier is None:
            yield (i, NAME), f"no check {check[NAME]!r}{did_you_mean(check[NAME], VERIFIERS)}"
            continue
        for keys, problem in _of_arguments(check, verifier, columns):
            yield (i, *keys), problem


def _of_arguments(
    check: Mapping[str, Any], verifier: Verifier, columns: Columns
) -> Iterator[Problem]:
    known = verifier.arguments()
    for name in verifier.required:
        if name not in check:
            yield (), f"{check[NAME]} needs {name}: {known[name].value}"
    if verifier.one_of and sum(name in check for name in verifier.one_of) != 1:
        yield (), f"{check[NAME]} takes exactly one of {' and '.join(verifier.one_of)}"
    for name, value in check.items():
        if name == NAME:
            continue
        if name not in known:
            yield (name,), f"{check[NAME]} has no argument {name!r}{did_you_mean(name, known)}"
            continue
        problem = _of_value(known[name], value, columns)
        if problem:
            yield (name,), problem


def _of_value(kind: Argument, value: Any, columns: Columns) -> str:
    number = isinstance(value, int | float) and not isinstance(value, bool) and value >= 0
    fits = {
        Argument.COLUMN: isinstance(value, str),
        Argument.NUMBER: number,
        Argument.COUNT: number and value == int(value),
        Argument.BOOLEAN: isinstance(value, bool),
        Argument.REGEX: isinstance(value, str),
        Argument.SCHEMA: isinstance(value, Mapping),
    }
    if not fits[kind]:
        return f"expected {kind.value}"
    if kind is Argument.COLUMN and columns is not None and value not in columns:
        return f"no column {value!r} in the rows{did_you_mean(value, sorted(columns))}"
    if kind is Argument.SCHEMA:
        return schema_problem(value)
    if kind is Argument.REGEX:
        return pattern_problem(value)
    return ""
