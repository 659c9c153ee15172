"""``after``: the steps that must have ended before one that reads nothing of them."""

import re
from collections.abc import Mapping
from typing import Any

from flowmesh_core.graph.compile_context import CompileContext, Keys, StepEntry
from flowmesh_core.graph.matrix import SelectionError, select
from flowmesh_core.graph.references import ReferenceFormError, parse_selection

_STEP = re.compile(r"([A-Za-z0-9][A-Za-z0-9_-]*)(?:\[(.*)\])?", re.DOTALL)


def read_after(scope: CompileContext, entry: StepEntry, own: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the paths of the steps that an instance comes after; problems are reported.

    Args:
        scope: the compilation.
        entry: the step.
        own: the instance's matrix values.
    """
    found: dict[str, None] = {}
    for i, text in enumerate(entry.spec.after):
        found |= dict.fromkeys(_paths(scope, text, own, (*entry.keys, "after", i)))
    return tuple(found)


def _paths(scope: CompileContext, text: str, own: Mapping[str, Any], keys: Keys) -> list[str]:
    match = _STEP.fullmatch(text.strip())
    if scope.notes.may_mean_step(text) and (match is None or match[1] not in scope.steps):
        return []
    if match is None:
        step = text.strip().partition(".")[0]
        hint = f"; did you mean {step!r}?" if step in scope.steps else ""
        scope.report(keys, f"{text!r} is not a step; write <step> or <step>[name=value]{hint}")
        return []
    name, inside = match[1], match[2]
    entry = scope.steps.get(name)
    if entry is None:
        scope.report(keys, f"no step {name!r}{scope.step_hint(name)}")
        return []
    if inside is None or entry.is_partial or not scope.has_own_matrix(keys):
        return [instance.path for instance in entry.instances]
    try:
        return select(name, entry.by_value, parse_selection(inside), own)[0]
    except (SelectionError, ReferenceFormError) as e:
        scope.report(keys, str(e))
        return []
