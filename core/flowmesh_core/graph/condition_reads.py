"""Finds what a condition reads: the steps, ports and fields, params and matrix values it names."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from typing import Any

from flowmesh_core.graph.cel import MACROS, TOO_DEEP, ConditionError, parse

ROOTS = ("params", "matrix", "steps")
_PORT_PARTS = 3  # steps, the step, the port
_MACRO_PARTS = 3  # the list, the macro's name, its arguments


@dataclass(frozen=True, slots=True)
class StepRead:
    """A step that a condition reads: ``steps['x'].port.field``; port and field may be empty.

    Attributes:
        is_inside: whether it looks into the whole port, as into a list: ``steps['x'].rows[0]``,
            ``steps['x'].rows.exists(...)`` or ``size(steps['x'].rows)``.
    """

    step: str
    port: str = ""
    field: str = ""
    is_inside: bool = False


@dataclass(frozen=True, slots=True)
class Reads:
    """Everything that a condition reads.

    Attributes:
        steps: steps, in order of appearance.
        names: ``(root, name)`` of params and matrix values.
        unknown: identifiers that are neither roots nor bound by a macro.
        functions: functions that are called.
        dynamic: whether ``steps`` is used other than by a fixed name.
        paths: where in params, matrix values and steps it looks, as names from the root; a path
            stands for everything below it.
    """

    steps: tuple[StepRead, ...]
    names: tuple[tuple[str, str], ...]
    unknown: tuple[str, ...]
    functions: tuple[str, ...]
    dynamic: bool
    paths: tuple[tuple[str, ...], ...] = ()


@lru_cache(maxsize=4096)
def reads(text: str) -> Reads:
    """Returns what a condition reads.

    Raises:
        ConditionError: it is not CEL.
    """
    tree = parse(text)
    found = _Found([], [], [])
    try:
        bound = set(_bound(tree))
        _collect(tree, found)
    except RecursionError as e:
        raise ConditionError(TOO_DEEP) from e
    functions = [str(n.children[0]) for n in tree.find_data("ident_arg")]
    methods = [str(n.children[1]) for n in tree.find_data("member_dot_arg")]
    return Reads(
        steps=tuple(dict.fromkeys(found.steps)),
        names=tuple(dict.fromkeys(found.names)),
        unknown=tuple(i for i in dict.fromkeys(found.idents) if i not in bound and i not in ROOTS),
        functions=tuple(dict.fromkeys([*functions, *methods])),
        dynamic="steps" in found.idents,
        paths=_paths(tree, found),
    )


def _paths(tree: Any, found: "_Found") -> tuple[tuple[str, ...], ...]:
    if any(tree.find_data("dot_ident")):  # .params.x: a form that admission does not analyse
        return tuple((root,) for root in ROOTS)
    steps = (("steps", *takewhile(bool, (s.step, s.port, s.field))) for s in found.steps)
    whole = ((root,) for root in ROOTS if root in found.idents)
    return tuple(dict.fromkeys([*steps, *found.names, *whole]))


@dataclass(frozen=True, slots=True)
class _Found:
    steps: list[StepRead]
    names: list[tuple[str, str]]
    idents: list[str]


def _collect(node: Any, found: _Found) -> None:
    """Collects what is read, outermost member first."""
    chain = _chain(node)
    if chain is not None and len(chain) > 1:
        root, name = chain[0], chain[1]
        if root == "steps":
            port, field = [*chain[2:4], "", ""][:2]
            found.steps.append(StepRead(name, port, field))
            return
        if root in ROOTS:
            found.names.append((root, name))
            return
    found.steps.extend(StepRead(s, port, is_inside=True) for s, port in _looked_into(node))
    if getattr(node, "data", "") == "ident":
        found.idents.append(str(node.children[0]))
        return
    for child in getattr(node, "children", ()):
        _collect(child, found)


def _looked_into(node: Any) -> Iterator[tuple[str, str]]:
    """Step and port where an expression treats a whole output as a list."""
    kind = getattr(node, "data", "")
    if kind in {"member_index", "member_dot_arg"}:
        looked_at = [node.children[0]]
    elif kind == "ident_arg" and str(node.children[0]) == "size":
        looked_at = [_inmost(node.children[1])] if len(node.children) > 1 else []
    else:
        return
    for chain in map(_chain, looked_at):
        if chain is not None and chain[0] == "steps" and len(chain) == _PORT_PARTS:
            yield chain[1], chain[2]


def _inmost(node: Any) -> Any:
    """The only expression in a list of arguments, without the levels of precedence around it."""
    while len(getattr(node, "children", ())) == 1 and _chain(node) is None:
        node = node.children[0]
    return node


def _chain(node: Any) -> list[str] | None:
    """``['steps', 'x', 'rows', 'count']`` for ``steps['x'].rows.count``; None for anything else."""
    kind = getattr(node, "data", "")
    if kind in {"member", "primary"} and len(node.children) == 1:
        return _chain(node.children[0])
    if kind == "ident":
        return [str(node.children[0])]
    if kind not in {"member_dot", "member_index"}:
        return None
    inner, last = _chain(node.children[0]), node.children[1]
    key = str(last) if kind == "member_dot" else _string(last)
    return None if inner is None or key is None else [*inner, key]


def _string(node: Any) -> str | None:
    """The value of an expression that is a string literal, else None."""
    leaf = _only_leaf(node)
    text = "" if leaf is None else str(leaf)
    return str(ast.literal_eval(text)) if text[:1] in {"'", '"'} else None


def _only_leaf(node: Any) -> Any:
    while getattr(node, "children", ()):
        if len(node.children) != 1:
            return None
        node = node.children[0]
    return node


def _bound(tree: Any) -> Iterator[str]:
    """Variables of macros: ``x`` in ``list.exists(x, x > 1)``."""
    for call in tree.find_data("member_dot_arg"):
        if str(call.children[1]) in MACROS and len(call.children) >= _MACRO_PARTS:
            first = _only_leaf(call.children[2].children[0])
            if first is not None:
                yield str(first)
