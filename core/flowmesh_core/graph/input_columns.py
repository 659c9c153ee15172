"""The columns of a step's inputs: those of several sources, and those of an empty data set."""

from collections.abc import Mapping, Sequence
from itertools import pairwise

import msgspec

from flowmesh_core.dataset.schema import ColumnType
from flowmesh_core.graph.compile_context import (
    Columns,
    CompileContext,
    EmptyRows,
    StepEntry,
)
from flowmesh_core.graph.input_forms import WHEN_SKIPPED
from flowmesh_core.graph.plan import EMPTY, FIRST, Edge, Source, StepPlan, StepSource

_REMEDY = "cast or rename them first, for example with data.sql"
_NULL = ColumnType.NULL


def joined_columns(edge: Edge, columns: Mapping[Source, Columns]) -> Columns:
    """Returns the columns that an input has for certain, or None where they are not known."""
    parts = [columns.get(source) for source in edge.sources]
    known = [part for part in parts if part is not None]
    if not known or len(known) < len(parts):
        return None
    if edge.pick == FIRST and any(a.keys() != b.keys() for a, b in pairwise(known)):
        return None
    return _merged(known)


def inputs_without_rows(scope: CompileContext) -> dict[Source, EmptyRows]:
    """Returns the inputs that are data sets without rows and columns."""
    found: dict[Source, EmptyRows] = {}
    for name, entry in scope.inputs.items():
        given = scope.workflow.spec.inputs[name]
        is_empty = given.rows == [] or (name in scope.columns and not scope.columns[name])
        if entry is not None and entry.columns is None and is_empty:
            file = f" ({given.dataset})" if given.dataset else ""
            found[entry.source] = EmptyRows(f"inputs.{name}{file}", {})
    return found


def ports_without_rows(scope: CompileContext, step: StepPlan) -> dict[str, EmptyRows]:
    """Returns the ports of a step that get no rows.

    An input that may be empty because steps are skipped is not one: its columns are written.
    """
    return {
        edge.port: scope.without_rows[edge.sources[0]]
        for edge in step.edges
        if edge.when_skipped != EMPTY
        and len(edge.sources) == 1
        and edge.sources[0] in scope.without_rows
    }


def with_columns(
    scope: CompileContext,
    entry: StepEntry,
    edges: tuple[Edge, ...],
    columns: Mapping[Source, Columns],
) -> tuple[Edge, ...]:
    """Returns a step's inputs with the columns of those that may be empty; reports problems.

    Args:
        scope: the compilation.
        entry: the step.
        edges: its inputs.
        columns: of data sets, as far as they are known.
    """
    for edge in edges:
        if edge.concatenate and len(edge.sources) > 1:
            _check_agreement(scope, entry, edge, columns)
    if all(edge.when_skipped != EMPTY for edge in edges):
        return edges
    return tuple(_filled(scope, entry, e, columns) if e.when_skipped == EMPTY else e for e in edges)


def _check_agreement(
    scope: CompileContext, entry: StepEntry, edge: Edge, columns: Mapping[Source, Columns]
) -> None:
    known = [(s, c) for s in edge.sources if (c := columns.get(s)) is not None]
    for (first, a), (other, b) in pairwise(known):
        missing = sorted(a.keys() ^ b.keys())
        if missing:
            has, lacks = (first, other) if missing[0] in a else (other, first)
            problem = (
                f"{_text(scope, lacks)} has no column {missing[0]!r}, and {_text(scope, has)} has"
            )
        elif differing := [name for name in a if not _agree(a[name], b[name])]:
            name = differing[0]
            problem = (
                f"column {name!r} is {a[name]} in {_text(scope, first)} and {b[name]} in"
                f" {_text(scope, other)}"
            )
        else:
            continue
        scope.report((*entry.keys, "inputs", edge.port), f"{problem}; {_REMEDY}")
        return


def _filled(
    scope: CompileContext, entry: StepEntry, edge: Edge, columns: Mapping[Source, Columns]
) -> Edge:
    keys = (*entry.keys, "inputs", edge.port, WHEN_SKIPPED)
    known = _merged([c for s in edge.sources if (c := columns.get(s)) is not None])
    typed = {name: kind for name, kind in known.items() if kind is not None}
    if edge.empty_columns:
        if known and known.keys() != edge.empty_columns.keys():
            scope.report(keys, f"{_names(scope, edge)} has the columns {', '.join(sorted(known))}")
        return edge
    if not known or len(typed) < len(known):
        scope.report(
            keys,
            f"the columns of {_names(scope, edge)} are not known here; write"
            f" {WHEN_SKIPPED}: {{{EMPTY}: {{{_example(known)}: string}}}}",
        )
        return edge
    return msgspec.structs.replace(
        edge, empty_columns={n: str(k) for n, k in sorted(typed.items())}
    )


def _merged(parts: Sequence[Mapping[str, ColumnType | None]]) -> dict[str, ColumnType | None]:
    merged: dict[str, ColumnType | None] = {}
    for part in parts:
        for name, kind in part.items():
            before = merged.setdefault(name, kind)
            if before is _NULL:
                merged[name] = kind
            elif not (kind is _NULL or before is kind):
                merged[name] = None
    return merged


def _agree(a: ColumnType | None, b: ColumnType | None) -> bool:
    return a is b or a in (None, _NULL) or b in (None, _NULL)


def _example(known: Mapping[str, ColumnType | None]) -> str:
    return min(known, default="question")


def _names(scope: CompileContext, edge: Edge) -> str:
    return " and ".join(_text(scope, source) for source in edge.sources[:2])


def _text(scope: CompileContext, source: Source) -> str:
    if isinstance(source, StepSource):
        return f"{source.step}.{source.port}"
    found = (name for name, e in scope.inputs.items() if e is not None and e.source == source)
    return f"inputs.{next(found, '?')}"
