"""References to values of a request and its stages, and texts that contain them.

A reference is ``request``, ``request.FIELD``, ``STAGE`` or ``STAGE.FIELD``; a field may be followed
by others, and by numbers for items of lists. A text may contain ``{{ REFERENCE }}``, written as in
a workflow's templates but without expressions, so that a hub can fill it in: lists, objects and
booleans are printed as JSON, and a null is an error.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from flowmesh_core.errors import FlowMeshError

REQUEST = "request"
_INDEX_DIGITS = 9
_REFERENCE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*")
_PRINTED = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)


class MissingValueError(FlowMeshError):
    """A value has no such field, or is null where a text needs it."""


class ValueReference(msgspec.Struct, frozen=True):
    """A value, or a part of one.

    Attributes:
        source: ``request`` or the name of a stage.
        path: fields, and numbers of items.
    """

    source: str
    path: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Returns it as it is written."""
        return ".".join((self.source, *self.path))

    def of(self, values: Mapping[str, Any]) -> Any:
        """Returns what it refers to.

        Raises:
            MissingValueError: there is no such field or item.
        """
        return part_of(values[self.source], self.path, str(self))


def parse_reference(text: str) -> ValueReference | None:
    """Returns a reference; None where the text has another form."""
    text = text.strip()
    if _REFERENCE.fullmatch(text) is None:
        return None
    source, *path = text.split(".")
    return ValueReference(source, tuple(path))


def part_of(value: Any, path: Sequence[str], name: str) -> Any:
    """Returns a part of a value.

    Raises:
        MissingValueError: it has no such part.
    """
    for key in path:
        if isinstance(value, Mapping) and key in value:
            value = value[key]
        elif isinstance(value, list) and _is_index(key) and int(key) < len(value):
            value = value[int(key)]
        else:
            raise MissingValueError(f"there is no {key!r} in {name}", where=name)
    return value


class TextTemplate(msgspec.Struct, frozen=True):
    """A text with references."""

    parts: tuple[str | ValueReference, ...]

    def fill(self, values: Mapping[str, Any]) -> str:
        """Returns the text with all values.

        Raises:
            MissingValueError: one is missing or null.
        """
        return "".join(p if isinstance(p, str) else _printed(p, values) for p in self.parts)


def parse_text(text: str) -> TextTemplate | str:
    """Returns a template; the text itself where it contains no reference.

    Raises:
        ValueError: what is between the braces is not a reference, or a brace has no end.
    """
    parts: list[str | ValueReference] = []
    end = 0
    for match in _PRINTED.finditer(text):
        reference = parse_reference(match[1])
        if reference is None:
            raise ValueError(
                f"{match[0][:60]!r} is not a reference: expected {{{{ request.FIELD }}}} or"
                " {{ STAGE.FIELD }}"
            )
        parts += [text[end : match.start()], reference]
        end = match.end()
    rest = text[end:]
    if "{{" in rest or "{%" in text:
        raise ValueError("expected {{ REFERENCE }} alone: statements and open braces are refused")
    return TextTemplate(tuple(p for p in (*parts, rest) if p)) if parts else text


def parse_tree(value: Any) -> Any:
    """Returns a JSON-like value with a template in place of each text that contains references.

    Raises:
        ValueError: see :func:`parse_text`.
    """
    if isinstance(value, str):
        return parse_text(value)
    if isinstance(value, Mapping):
        return {name: parse_tree(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [parse_tree(item) for item in value]
    return value


def references_in(tree: Any) -> Iterator[ValueReference]:
    """Yields the references in what :func:`parse_tree` returns."""
    if isinstance(tree, TextTemplate):
        yield from (part for part in tree.parts if isinstance(part, ValueReference))
    elif isinstance(tree, Mapping):
        for item in tree.values():
            yield from references_in(item)
    elif isinstance(tree, list):
        for item in tree:
            yield from references_in(item)


def fill_tree(tree: Any, values: Mapping[str, Any]) -> Any:
    """Returns what :func:`parse_tree` returned, with all texts filled in.

    Raises:
        MissingValueError: a value is missing or null.
    """
    if isinstance(tree, TextTemplate):
        return tree.fill(values)
    if isinstance(tree, Mapping):
        return {name: fill_tree(item, values) for name, item in tree.items()}
    if isinstance(tree, list):
        return [fill_tree(item, values) for item in tree]
    return tree


def _is_index(key: str) -> bool:
    # Python refuses to read thousands of digits, as a service's author may write.
    return len(key) <= _INDEX_DIGITS and key.isdigit()


def _printed(reference: ValueReference, values: Mapping[str, Any]) -> str:
    value = reference.of(values)
    if value is None:
        raise MissingValueError(f"{reference} is null", where=str(reference))
    if isinstance(value, str):
        return value
    return msgspec.json.encode(value).decode()
