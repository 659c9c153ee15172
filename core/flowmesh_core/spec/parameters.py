"""Checks a workflow's parameters and fills them in, before its fields are typed.

Called by ``load`` for every workflow. References in ``with`` and ``when`` stay: the compiler fills
them in, together with the matrix values.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from flowmesh_api.v1.problems import Problem
from flowmesh_core.spec.declarations import declaration_problems, value_problems
from flowmesh_core.spec.error_messages import describe
from flowmesh_core.spec.field_notes import Keys
from flowmesh_core.spec.suggestions import did_you_mean
from flowmesh_documents.parameters import (
    default_of,
    fill_spec,
    is_declaration,
    missing_value,
)
from flowmesh_documents.paths import path_text
from flowmesh_documents.substitution import Substitution

_PARAMS: Keys = ("spec", "params")
_FREE_FORM = 3
"""Keys before one that says whether a value may be an object: spec.inputs.x.rows."""


@dataclass(frozen=True, slots=True)
class FilledWorkflow:
    """A workflow's document with its parameters filled in.

    Attributes:
        document: with values in place of declarations.
        problems: of declarations, values and references.
        origins: as :class:`FieldNotes` has them.
        left_out: parameters without a value, and fields with references that have none.
    """

    document: Any
    problems: list[Problem]
    origins: dict[Keys, str]
    left_out: frozenset[Keys]


def fill_parameters(document: Mapping[str, Any]) -> FilledWorkflow:
    """Returns the document with ``${params.x}`` filled in; it is not changed itself."""
    spec = document.get("spec")
    if not isinstance(spec, Mapping):
        return FilledWorkflow(document, [], {}, frozenset())
    problems: list[Problem] = []
    left_out: set[Keys] = set()

    def report(keys: Keys, message: str) -> None:
        left_out.add(keys)
        if message:
            problems.append(Problem(path_text(keys), message))

    params = spec.get("params", {})
    values: dict[str, Any] = {}
    if isinstance(params, Mapping):
        for name, entry in params.items():
            found = list(_problems(name, entry))
            problems += [Problem(path_text((*_PARAMS, name, *keys)), m) for keys, m in found]
            if found:
                left_out.add((*_PARAMS, name))
            else:
                (values[name],) = default_of(entry)
    else:
        report(_PARAMS, f"expected a mapping, got {describe(params)}")
    unknown = frozenset({("params", *keys[2:]) for keys in left_out})
    names = Substitution(values, unknown=unknown, suggest=did_you_mean)
    filled = fill_spec(spec, names, report)
    if isinstance(params, Mapping) and "params" in spec:
        filled["params"] = values
    for keys, reference in names.places.items():
        if isinstance(_at(filled, keys[1:]), Mapping) and not _takes_objects(keys):
            report(keys, f"{reference} is an object, which is not filled in here; name its fields")
    return FilledWorkflow({**document, "spec": filled}, problems, names.places, frozenset(left_out))


def _problems(name: str, entry: Any) -> Iterator[tuple[Keys, str]]:
    """Yields what is wrong with a parameter: the keys below its name, and the message."""
    if not is_declaration(entry):
        return
    wrong = list(declaration_problems(entry))
    if wrong:
        yield from wrong
    elif not (found := default_of(entry)):
        yield (), missing_value(name)
    else:
        for message in value_problems(name, entry, found[0]):
            yield ("default",), message


def _takes_objects(keys: Keys) -> bool:
    """Whether a field's values are free: rows, and the inputs of a step."""
    inside = keys[:2] == ("spec", "inputs") and keys[_FREE_FORM : _FREE_FORM + 1] == ("rows",)
    return inside or (keys[:2] == ("spec", "steps") and keys[_FREE_FORM] == "inputs")


def _at(value: Any, keys: Keys) -> Any:
    """Returns the value at a place; None where it was left out."""
    for key in keys:
        value = value.get(key) if isinstance(value, Mapping) else value[key]
        if value is None:
            return None
    return value
