"""Refuses JSON that would not be read as it was written.

orjson reads integers beyond 64 bits and decimals of many digits as the nearest float, and of equal
keys it keeps the last. Both are found by a cheap test of the text first; only a text that fails it
is parsed again, by the slower standard library.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

from flowmesh_core.errors import ContentLimitError, IdentityError
from flowmesh_store.datasets.csv_types import DIGITS_MAX, INT64
from flowmesh_store.datasets.exact_numbers import exact_float, shown

_NUMBER = re.compile(rb"[0-9.eE+-]{16,}|[0-9.]+[eE]-[0-9]{3,}")
"""A number that is long enough to lose digits."""
_DIGITS_AS_0 = bytes.maketrans(b"123456789", b"000000000")
_LONG_NUMBERS = (b"00000000", b"e-000", b"E-000")
"""With its digits as zeros such a number has one of these: one side of its point has eight."""
_KEY = re.compile(rb'"\s*:')
_SPACED_COLONS = (b" :", b"\t:", b"\n:", b"\r:")


@dataclass(frozen=True, slots=True)
class _Loss:
    """Takes the place of a value that would lose something."""

    reason: str
    remedy: str


def refuse_losses(text: bytes, value: Any, where: str) -> None:
    """Refuses numbers whose digits would be lost, and objects that name a key twice.

    Args:
        text: JSON that orjson reads.
        value: what it read: a row, or a list of rows.
        where: the place, for errors.

    Raises:
        IdentityError: there is one; names its row, if there are several, and its column.
        ContentLimitError: it is nested too deeply.
    """
    if _has_all_digits(text) and _colons(text) == _keys(value):
        return
    try:
        exact = json.loads(
            text, parse_int=_integer, parse_float=_decimal, object_pairs_hook=_object
        )
        _refuse(exact, where)
    except RecursionError as e:
        raise ContentLimitError("nested too deeply", where=where, remedy="flatten it") from e


def _refuse(exact: Any, where: str) -> None:
    if isinstance(exact, list):
        for number, row in enumerate(exact, 1):
            _refuse_row(row, f"{where}, row {number}")
    else:
        _refuse_row(exact, where)


def _refuse_row(row: Any, where: str) -> None:
    columns = row.items() if isinstance(row, dict) else [("", row)]
    for column, value in columns:
        loss = _first_loss(value)
        if loss is not None:
            place = f"{where}, column {column!r}" if column else where
            raise IdentityError(loss.reason, where=place, remedy=loss.remedy)


def _has_all_digits(text: bytes) -> bool:
    """Whether every number is as a float prints it, or too short to lose digits."""
    zeros = text.translate(_DIGITS_AS_0)
    if not any(sign in zeros for sign in _LONG_NUMBERS):
        return True
    try:
        return all(repr(float(n)) == n for n in map(bytes.decode, _NUMBER.findall(text)))
    except ValueError:  # a part of a string
        return False


def _colons(text: bytes) -> int:
    """Returns the number of keys, and of what looks like one inside a string."""
    if any(colon in text for colon in _SPACED_COLONS):
        return len(_KEY.findall(text))
    return text.count(b'":')


def _keys(value: Any) -> int:
    """Returns the number of keys of all objects in a value."""
    if isinstance(value, dict):
        nested = [v for v in value.values() if isinstance(v, dict | list)]
        return len(value) + (sum(map(_keys, nested)) if nested else 0)
    return sum(map(_keys, value)) if isinstance(value, list) else 0


def _first_loss(value: Any) -> _Loss | None:
    if isinstance(value, _Loss):
        return value
    parts = value.values() if isinstance(value, dict) else value
    if not isinstance(value, dict | list):
        return None
    return next((loss for part in parts if (loss := _first_loss(part)) is not None), None)


def _object(pairs: list[tuple[str, Any]]) -> Any:
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    names = [name for name, _ in pairs]
    twice = next(name for name in found if names.count(name) > 1)
    return _Loss(f"the key {twice!r} is given twice in one object", "keep one of them")


def _integer(digits: str) -> Any:
    if len(digits) <= DIGITS_MAX and int(digits) in INT64:
        return int(digits)
    return _Loss(
        f"the integer {shown(digits)} does not fit into 64 bits",
        "put it in quotes, so that no digit is lost",
    )


def _decimal(text: str) -> Any:
    number = exact_float(text)
    if number is not None:
        return number
    return _Loss(
        f"the number {shown(text)} has more digits than a float",
        "round it, or put it in quotes, so that no digit is lost",
    )
