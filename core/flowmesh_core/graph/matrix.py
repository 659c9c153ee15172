"""Static fan-out: the instances of a step, and those that a selection names."""

import itertools
import math
from collections.abc import Mapping
from typing import Any

import msgspec

from flowmesh_core.graph.references import EVERY, SameInstance, Selection
from flowmesh_core.spec.suggestions import did_you_mean
from flowmesh_documents.values import matrix_text


class SelectionError(ValueError):
    """A selection without an instance; the message lists the instances."""


class StepInstance(msgspec.Struct, frozen=True, gc=False):
    """One combination of matrix values of a step.

    Attributes:
        path: ``tune[lr=1e-5,seed=1]``; the step's name where it has no matrix.
        matrix: the values, in order of declaration.
    """

    path: str
    matrix: dict[str, Any]


def size(matrix: Mapping[str, list[Any]]) -> int:
    """Returns how many instances the matrix has."""
    return math.prod(map(len, matrix.values())) if matrix else 1


def expand(name: str, matrix: Mapping[str, list[Any]]) -> list[StepInstance]:
    """Returns the instances in order: the last name varies fastest."""
    if not matrix:
        return [StepInstance(name, {})]
    return [
        StepInstance(instance_path(name, chosen), chosen)
        for values in itertools.product(*matrix.values())
        for chosen in [dict(zip(matrix, values, strict=True))]
    ]


def instance_path(name: str, values: Mapping[str, Any]) -> str:
    """Returns the path of one instance."""
    inside = ",".join(f"{k}={matrix_text(v)}" for k, v in values.items())
    return f"{name}[{inside}]"


def value_key(value: Any) -> tuple[bool, Any]:
    """Returns equal keys for equal values: 1 and 1.0 are equal, 1 and true and "1" are not."""
    return isinstance(value, bool), value


Index = Mapping[str, Mapping[tuple[bool, Any], Any]]


def index(matrix: Mapping[str, list[Any]]) -> Index:
    """Returns a matrix's values by :func:`value_key`, for each name."""
    return {name: {value_key(v): v for v in values} for name, values in matrix.items()}


def select(
    name: str,
    matrix: Index,
    selection: Selection,
    own: Mapping[str, Any],
) -> tuple[list[str], bool]:
    """Returns the paths of the instances that a selection names, in order of declaration.

    Args:
        name: the step that is referred to.
        matrix: the index of its matrix.
        selection: the part in brackets.
        own: the referring instance's matrix values.

    Returns:
        The paths, and whether they are a concatenation (a ``*`` is among the values).

    Raises:
        SelectionError: an unknown name or value, or a name left out.
    """
    if not matrix:
        raise SelectionError(f"step {name!r} has no matrix; leave [..] out")
    if selection.everything:
        every = {k: list(values.values()) for k, values in matrix.items()}
        return [i.path for i in expand(name, every)], True
    for given in selection.values:
        if given not in matrix:
            raise SelectionError(
                f"step {name!r} has no matrix name {given!r}{did_you_mean(given, matrix)}"
            )
    left_out = [k for k in matrix if k not in selection.values]
    if left_out:
        raise SelectionError(
            f"step {name!r} has the matrix names {', '.join(matrix)}; "
            f"write {left_out[0]}=value, or {left_out[0]}=* for all"
        )
    chosen = {k: _chosen(name, k, values, selection.values[k], own) for k, values in matrix.items()}
    several = any(v is EVERY for v in selection.values.values())
    return [i.path for i in expand(name, chosen)], several


def _chosen(
    name: str, key: str, values: Mapping[tuple[bool, Any], Any], wanted: Any, own: Mapping[str, Any]
) -> list[Any]:
    if wanted is EVERY:
        return list(values.values())
    if isinstance(wanted, SameInstance):
        if wanted.name not in own:
            raise SelectionError(
                f"this step has no matrix name {wanted.name!r}{did_you_mean(wanted.name, own)}"
            )
        wanted = own[wanted.name]
    if value_key(wanted) not in values:
        listed = ", ".join(matrix_text(v) for v in itertools.islice(values.values(), 8))
        raise SelectionError(
            f"step {name!r} has no instance with {key}={matrix_text(wanted)}; there is {listed}"
        )
    return [values[value_key(wanted)]]
