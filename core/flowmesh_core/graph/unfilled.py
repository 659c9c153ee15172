"""References to matrix values in fields of a step where none is filled in.

A text with one would stand for itself. Called by ``compile`` once a workflow.
"""

import re
from typing import Any

from flowmesh_core.graph.compile_context import CompileContext, Keys

_NAMED = re.compile(r"(?<!\$)\$\{\s*matrix\.([A-Za-z_][A-Za-z0-9_]*)")


def report_unfilled(scope: CompileContext) -> None:
    """Reports references to a step's own matrix in its salt and its labels."""
    for i, step in enumerate(scope.workflow.spec.steps):
        if not step.matrix:
            continue
        keys: Keys = ("spec", "steps", i)
        _report(scope, step.cache.salt, (*keys, "cache", "salt"), step.matrix)
        for field, labels in (
            ("labels", step.resources.labels),
            ("antiLabels", step.resources.anti_labels),
        ):
            for name, text in labels.items():
                _report(scope, text, (*keys, "resources", field, name), step.matrix)


def _report(scope: CompileContext, text: str, keys: Keys, matrix: dict[str, list[Any]]) -> None:
    for found in _NAMED.finditer(text):
        if found[1] in matrix:
            name = f"${{matrix.{found[1]}}}"
            scope.report(keys, f"{name} is not filled in here, only in with and when of steps")
            return
