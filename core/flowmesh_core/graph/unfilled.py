"""References such as ``${params.x}`` in places where none is filled in.

A text with one would stand for itself. Called by ``compile`` once a workflow.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from flowmesh_core.graph.compile_context import CompileContext, Keys

_NAMED = re.compile(r"(?<!\$)\$\{\s*(params|matrix)\.([A-Za-z_][A-Za-z0-9_]*)")


def report_unfilled(scope: CompileContext) -> None:
    """Reports references to declared names in inputs, and in salts and labels of steps."""
    spec = scope.workflow.spec
    if spec.params:
        for name, source in spec.inputs.items():
            given = source.model_dump(by_alias=True, exclude_none=True, exclude={"secrets"})
            _report(scope, given, ("spec", "inputs", name), {})
    for i, step in enumerate(spec.steps):
        keys: Keys = ("spec", "steps", i)
        resources = step.resources
        _report(scope, step.cache.salt, (*keys, "cache", "salt"), step.matrix)
        _report(scope, resources.labels, (*keys, "resources", "labels"), step.matrix)
        _report(scope, resources.anti_labels, (*keys, "resources", "antiLabels"), step.matrix)


def _report(scope: CompileContext, value: Any, keys: Keys, matrix: Mapping[str, Any]) -> None:
    declared = {"params": scope.workflow.spec.params, "matrix": matrix}
    for place, text in _texts(value, keys):
        for found in _NAMED.finditer(text):
            if found[2] in declared[found[1]]:
                name = f"${{{found[1]}.{found[2]}}}"
                scope.report(place, f"{name} is not filled in here, only in with and when of steps")
                break


def _texts(value: Any, keys: Keys) -> Iterator[tuple[Keys, str]]:
    """Yields the texts in a value that may have references."""
    if isinstance(value, str):
        if "${" in value:
            yield keys, value
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from _texts(inner, (*keys, key))
    elif isinstance(value, list):
        for i, inner in enumerate(value):
            yield from _texts(inner, (*keys, i))
