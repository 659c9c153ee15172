"""How values are written as text, in paths and inside longer texts, and how long that is."""

import json
import re
from typing import Any

from flowmesh_documents.scalars import RefusedScalarError, read_plain

_BARE = re.compile(r"[A-Za-z0-9_./:@+-]([A-Za-z0-9_./:@ +-]*[A-Za-z0-9_./:@+-])?")
_SPECIAL = re.compile(r"matrix\..*|\*")


def value_text(value: Any) -> str:
    """Returns a value as part of a longer string: strings as they are, all else as JSON."""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return number_text(value)
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def number_text(value: float) -> str:
    """Returns the shortest decimal: ``0.8``, ``1e-5``; an integral one without a point: ``2``."""
    if value.is_integer() and abs(value) < 1e15:  # noqa: PLR2004 - beyond, repr has an exponent
        return str(int(value))
    mantissa, _, exponent = repr(value).partition("e")
    return f"{mantissa}e{int(exponent)}" if exponent else mantissa


def matrix_text(value: Any) -> str:
    """Returns a matrix value in a path: ``lr=1e-5``; ambiguous strings are quoted."""
    if isinstance(value, str) and not _reads_as_itself(value):
        return json.dumps(value, ensure_ascii=False)
    return value_text(value)


def json_size(value: object) -> int:
    """Returns about how many bytes a JSON-like value has when written."""
    if isinstance(value, str):
        return len(value) + 2
    if isinstance(value, dict):
        return 2 + sum(len(k) + 4 + json_size(v) for k, v in value.items())
    if isinstance(value, list):
        return 2 + sum(1 + json_size(v) for v in value)
    return 8


def _reads_as_itself(text: str) -> bool:
    if not _BARE.fullmatch(text) or _SPECIAL.fullmatch(text):
        return False
    try:
        return isinstance(read_plain(text), str)
    except RefusedScalarError:
        return False
