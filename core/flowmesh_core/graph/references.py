"""References to outputs: ``inputs.base``, ``vote.rows``, ``tune[lr=1e-5].model``, ``tune[*].rows``.

A selection may name values of the referring step's own matrix: ``tune[lr=matrix.lr].model`` means,
in each instance, the instance with the same value.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from flowmesh_documents.scalars import RefusedScalarError, read_plain

INPUTS = "inputs"
_FORM = re.compile(r"([A-Za-z0-9][A-Za-z0-9_-]*)(?:\[(.*)\])?\.([A-Za-z0-9_-]+)", re.DOTALL)
_PAIR = re.compile(
    r"""\s*+([A-Za-z_]\w*+)\s*+=\s*+"""
    r"""("(?:[^"\\]|\\.)*+"|'[^']*+'|[^,"'\s]++(?:\s++[^,"'\s]++)*+|)\s*+(?:,|$)"""
)
"""Possessive quantifiers: no backtracking, so that long texts are read in one pass."""


class ReferenceFormError(ValueError):
    """A reference of no known form; the message shows the forms."""


@dataclass(frozen=True, slots=True)
class SameInstance:
    """Stands for the referring instance's own value of this matrix name."""

    name: str


class AllInstances:
    """All values: ``*``."""


EVERY = AllInstances()


@dataclass(frozen=True, slots=True)
class Selection:
    """Instances of a matrix: a value, :class:`SameInstance` or :data:`EVERY` by matrix name."""

    values: Mapping[str, Any]
    everything: bool = False


@dataclass(frozen=True, slots=True)
class StepReference:
    """A parsed reference.

    Attributes:
        step: the step's name; ``inputs`` for an input from outside.
        port: the port, or the input's name.
        selection: the part in brackets, or None.
    """

    step: str
    port: str
    selection: Selection | None = None


@lru_cache(maxsize=4096)
def parse_reference(text: str) -> StepReference:
    """Reads a reference.

    Raises:
        ReferenceFormError: it has no known form.
    """
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise ReferenceFormError(
            f"{text!r} is not a reference; write inputs.<name>, <step>.<port>, "
            "<step>[name=value].<port> or <step>[*].<port>"
        )
    step, inside, port = match[1], match[2], match[3]
    return StepReference(step, port, None if inside is None else parse_selection(inside))


def parse_selection(text: str) -> Selection:
    """Reads the part in brackets: ``*``, or ``name=value`` pairs.

    Raises:
        ReferenceFormError: it has no known form.
    """
    if text.strip() == "*":
        return Selection({}, everything=True)
    values: dict[str, Any] = {}
    at = 0
    while at < len(text) or not values:
        pair = _PAIR.match(text, at)
        if pair is None:
            raise ReferenceFormError(f"[{text}] selects nothing; write [name=value] or [*]")
        # Python before 3.11.5 leaves spaces behind a repeated possessive group in its match.
        values[pair[1]] = _value(pair[2].rstrip())
        at = pair.end()
    return Selection(values)


def _value(text: str) -> Any:
    if text == "*":
        return EVERY
    if text.startswith("matrix."):
        return SameInstance(text.removeprefix("matrix."))
    if text.startswith("'"):
        return text[1:-1]
    try:
        return json.loads(text) if text.startswith('"') else read_plain(text)
    except (RefusedScalarError, ValueError) as e:
        raise ReferenceFormError(str(e)) from e
