"""The canonical form: one spelling in bytes for one value.

Everything that is hashed by value (parameters, schemas, rows) goes through here, and engines get
what :func:`decode` returns, never the user's spelling. The form is JSON without whitespace, and its
type tags are JSON's own syntax:

- objects with their keys in the order of code points; keys are normalised to NFC (names of
  parameters are ASCII by contract, names of columns need not be), two keys that become one are
  refused;
- strings exactly as they are, not normalised;
- integers of signed 64 bits without a dot or an exponent;
- floats as the shortest decimal that reads back, spelled as Python's ``repr`` does, so always with
  a dot or an exponent; ``-0.0`` is ``0.0``;
- ``true``, ``false``, ``null``, and lists (tuples are lists).

NaN, infinities, longer integers, lone surrogates, bytes and other types are refused. ``1`` and
``1.0`` are two values: the contract types a value before it comes here (``coerce``).
"""

import math
import unicodedata
from typing import Any

import orjson

from flowmesh_core.errors import IdentityError

INT_MIN = -(2**63)
INT_MAX = 2**63 - 1
MAX_DEPTH = 200
# Between these orjson writes what repr writes; beyond, its releases spell exponents differently.
PLAIN_FLOAT_MIN = 1e-4
PLAIN_FLOAT_LIMIT = 1e16


def canonical_bytes(value: Any) -> bytes:
    """Returns a value in its canonical form.

    Raises:
        IdentityError: the value, or one inside it, has no canonical form; names its path.
    """
    try:
        return orjson.dumps(_written(value), option=orjson.OPT_SORT_KEYS)
    except (_UnusualError, RecursionError, orjson.JSONEncodeError):
        pass  # the slow pass finds which value it is, and where
    return orjson.dumps(_normalised(value, "", 0), option=orjson.OPT_SORT_KEYS)


def decode(data: bytes) -> Any:
    """Reads a canonical form back: ``decode(canonical_bytes(v))`` is ``v``, tuples being lists.

    Raises:
        IdentityError: the bytes are not JSON.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as e:
        raise IdentityError(f"not a canonical form: {e}") from e


def float_is_plain(x: float) -> bool:
    """Whether every release of orjson writes this float as ``repr`` does."""
    return PLAIN_FLOAT_MIN <= abs(x) < PLAIN_FLOAT_LIMIT or (x == 0.0 and math.copysign(1, x) > 0)


def float_fragment(x: float) -> Any:
    """Returns what orjson needs to write a finite float in its canonical spelling."""
    return x if float_is_plain(x) else orjson.Fragment(repr(x + 0.0))


class _UnusualError(Exception):
    """The value needs the slow pass: it is refused, or its canonical form differs from orjson's."""


def _written(value: Any) -> Any:
    """Returns the value for orjson: itself, or a copy where a float needs its own spelling."""
    t = type(value)
    if t is str or t is bool or value is None:
        return value
    if t is dict:
        return _written_object(value)
    if t is list or t is tuple:
        for i, item in enumerate(value):
            # Most items are strings, so the call is saved for them.
            if type(item) is not str and _written(item) is not item:
                return [*value[:i], *map(_written, value[i:])]
        return value
    if t is int and INT_MIN <= value <= INT_MAX:
        return value
    if t is float and math.isfinite(value):
        return float_fragment(value)
    raise _UnusualError


def _written_object(value: dict[Any, Any]) -> dict[str, Any]:
    out = value
    for k, item in value.items():
        if type(k) is not str or not k.isascii():
            raise _UnusualError
        if type(item) is not str:
            new = _written(item)
            if new is not item:
                if out is value:
                    out = dict(value)
                out[k] = new
    return out


def _normalised(value: Any, path: str, depth: int) -> Any:
    """Returns the value in types that orjson writes canonically; raises where there are none."""
    if depth > MAX_DEPTH:
        raise IdentityError(f"nested deeper than {MAX_DEPTH} levels", where=path)
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _string(value, path)
    if isinstance(value, int):
        if not INT_MIN <= value <= INT_MAX:
            raise IdentityError(
                "an integer beyond 64 bits", where=path, remedy="write it as a string"
            )
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise IdentityError(
                f"{float(value)} has no canonical form", where=path, remedy="use null or a string"
            )
        return float_fragment(float(value))
    if isinstance(value, dict):
        return _object(value, path, depth)
    if isinstance(value, list | tuple):
        return [_normalised(v, f"{path}[{i}]", depth + 1) for i, v in enumerate(value)]
    raise IdentityError(
        f"a value of type {type(value).__name__} has no canonical form",
        where=path,
        remedy="use null, true, false, numbers, strings, lists and objects",
    )


def _object(value: dict[Any, Any], path: str, depth: int) -> dict[str, Any]:
    out: dict[str, Any] = {}
    for k, v in value.items():
        if not isinstance(k, str):
            raise IdentityError(
                f"the key {k!r} is not a string", where=path, remedy="quote the key"
            )
        key_path = f"{path}.{k}" if path else k
        key = unicodedata.normalize("NFC", _string(k, key_path))
        if key in out:
            raise IdentityError(f"two keys are the same name {key!r} in NFC", where=path)
        out[key] = _normalised(v, key_path, depth + 1)
    return out


def _string(value: str, path: str) -> str:
    plain = str.__str__(value)
    try:
        plain.encode()
    except UnicodeEncodeError as e:
        raise IdentityError(
            "a string with a lone surrogate is not Unicode text",
            where=ascii(path)[1:-1],
            remedy="remove it or encode the bytes, for example in base64",
        ) from e
    return plain
