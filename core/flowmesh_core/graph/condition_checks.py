"""Checks conditions at admission: every name must exist, and each step they read is an edge."""

import re
from collections.abc import Collection, Mapping
from typing import Any

from flowmesh_core.catalog.contract import PortKind
from flowmesh_core.graph.cel import LONGEST, ConditionError, check_size, known_functions, too_long
from flowmesh_core.graph.compile_context import CompileContext, Keys, MetricRead, StepEntry
from flowmesh_core.graph.condition_reads import ROOTS, Reads, StepRead, reads
from flowmesh_core.graph.matrix import SelectionError, StepInstance, select
from flowmesh_core.graph.outputs import find_output
from flowmesh_core.graph.references import ReferenceFormError, parse_selection
from flowmesh_core.spec.suggestions import did_you_mean
from flowmesh_documents.substitution import Substitution, UnknownNameError
from flowmesh_documents.values import matrix_text, value_text

COUNT = "count"
"""The field of a data set that a condition may read."""
_NO_ROWS = (
    "a condition cannot read a row; compute a metric, e.g. data.sql with metrics: true, or compare"
    " the count"
)

_REFERENCE = re.compile(r"\$\{([^{}]*)\}")
_STEP = re.compile(r"([^\[\]]+)(?:\[(.*)\])?", re.DOTALL)


def read_condition(
    scope: CompileContext, entry: StepEntry, instance: StepInstance
) -> tuple[str, tuple[str, ...]]:
    """Returns the condition of an instance and the paths that it reads; problems are reported."""
    keys = (*entry.keys, "when")
    try:
        text = fill(entry.spec.when, scope.substitution(entry, instance.matrix))
        check_size(text)
        found = reads(text)
    except ConditionError as e:
        scope.report(keys, str(e))
        return "", ()
    _check_names(scope, found, instance.matrix, scope.notes.unknown_names(entry.keys), keys)
    paths = [_path(scope, read, keys) for read in found.steps]
    return text, tuple(dict.fromkeys(p for p in paths if p is not None))


def fill(text: str, names: Substitution) -> str:
    """Returns the condition with ``${…}`` filled in: as text in quotes, as a literal elsewhere.

    Raises:
        ConditionError: a name is unknown, or it is too long.
    """
    if "${" not in text:
        return text
    if len(text) > LONGEST:
        raise ConditionError(too_long(len(text)))
    filled = len(text)

    def replaced(match: re.Match[str]) -> str:
        try:
            value = names.look_up(match[1])
        except UnknownNameError as e:
            raise ConditionError(str(e)) from e
        nonlocal filled
        before = text[: match.start()]
        inside_quotes = before.count("'") % 2 or before.count('"') % 2
        if inside_quotes:
            written = matrix_text(value)
        else:
            written = repr(value) if isinstance(value, str) else value_text(value)
        filled += len(written) - len(match[0])
        if filled > LONGEST:
            raise ConditionError(too_long(filled))
        return written

    return _REFERENCE.sub(replaced, text)


def _check_names(
    scope: CompileContext,
    found: Reads,
    matrix: Mapping[str, Any],
    unknown: Collection[Keys],
    keys: Keys,
) -> None:
    values: dict[str, Mapping[str, Any]] = {"params": scope.params(), "matrix": matrix}
    for root, name in found.names:
        if name not in values[root] and not {(root,), (root, name)} & set(unknown):
            scope.report(keys, f"no {name!r} in {root}{did_you_mean(name, values[root])}")
    for name in found.unknown:
        hint = f"; did you mean steps['{name}']?" if name in scope.steps else ""
        scope.report(keys, f"{name!r} is not known; a condition reads {', '.join(ROOTS)}{hint}")
    known = known_functions()
    for name in found.functions:
        if name not in known:
            scope.report(keys, f"no function {name!r}{did_you_mean(name, sorted(known))}")
    if found.dynamic:
        scope.report(keys, "a step is read by a fixed name: steps['name'].port.field")


def _path(scope: CompileContext, read: StepRead, keys: Keys) -> str | None:
    """The path of the instance that is read; None with a problem reported."""
    match = _STEP.fullmatch(read.step)
    name, inside = (match[1], match[2]) if match else (read.step, None)
    entry = scope.steps.get(name)
    if entry is None:
        if not scope.notes.may_mean_step(read.step):
            scope.report(keys, f"no step {name!r}{scope.step_hint(name)}")
        return None
    if inside is None:
        paths = [name] if not entry.spec.matrix else []
        _check_field(scope, entry, read, paths, keys)
        if paths:
            return name
        example = f": steps['{entry.instances[0].path}']" if entry.instances else ""
        scope.report(keys, f"step {name!r} has a matrix; read one of its instances{example}")
        return None
    if entry.is_partial:
        return None
    path = _instance(scope, entry, read.step, inside, keys)
    _check_field(scope, entry, read, [] if path is None else [path], keys)
    return path


def _instance(
    scope: CompileContext, entry: StepEntry, given: str, inside: str, keys: Keys
) -> str | None:
    try:
        selection = parse_selection(inside)
        paths, several = select(entry.spec.name, entry.by_value, selection, {})
    except (SelectionError, ReferenceFormError) as e:
        scope.report(keys, str(e))
        return None
    if several:
        scope.report(keys, f"a condition reads one instance of {entry.spec.name!r}, not several")
    elif paths[0] != given:
        scope.report(keys, f"write steps[{paths[0]!r}], the instance's path")
    return paths[0]


def _check_field(
    scope: CompileContext, entry: StepEntry, read: StepRead, paths: list[str], keys: Keys
) -> None:
    port = find_output(scope, entry, paths, read.port, keys) if read.port else None
    if port is None:
        return
    if port.kind is PortKind.DATASET and read.is_inside:
        scope.report(keys, _NO_ROWS)
    elif port.kind is PortKind.DATASET and read.field not in {"", COUNT}:
        scope.report(
            keys,
            f"of a data set a condition reads the count: steps['{read.step}'].{port.name}.count",
        )
    elif port.kind not in {PortKind.DATASET, PortKind.METRICS}:
        scope.report(
            keys, f"{read.port} is a {port.kind.value}; conditions read metrics and counts"
        )
    elif port.kind is PortKind.METRICS and read.field and paths:
        scope.metric_reads.append(MetricRead(paths[0], port.name, read.field, keys))
