"""Durations, amounts of memory and dollars, as users write them.

The patterns are in the custom resources too, so that the API server refuses what these functions
would refuse. They bound the digits: infinity has no JSON, and messages have integers of 64 bits.
"""

import math
import re
from typing import TypeVar

from flowmesh_core.units import MiB, NanoUsd, nano_usd

_Number = TypeVar("_Number", bound=float)

DURATION_PATTERN = r"^([0-9]{1,9}(\.[0-9]{1,9})?(ms|s|m|h|d)){1,5}$"
MEMORY_PATTERN = r"^[0-9]{1,12}(\.[0-9]{1,9})?(Ki|Mi|Gi|Ti|k|M|G|T)$"
USD_PATTERN = r"^[0-9]{1,9}(\.[0-9]{1,9})?$"

NOT_ZERO_RULE = "0 is not a limit; write more than 0, or leave it out"
"""Of a limit that bounds nothing where it is left out, inside as 0: a written 0 is a mistake."""

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}
_BYTES = {
    **{unit: 1024 ** (i + 1) for i, unit in enumerate(("Ki", "Mi", "Gi", "Ti"))},
    **{unit: 1000 ** (i + 1) for i, unit in enumerate(("k", "M", "G", "T"))},
}
_DURATION_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)")
_MEMORY = re.compile(r"([0-9]{1,12}(?:\.[0-9]{1,9})?)(Ki|Mi|Gi|Ti|k|M|G|T)")
_MIB_BYTES = 1024 * 1024


def not_zero(value: _Number) -> _Number:
    """Returns a limit as it is.

    Raises:
        ValueError: it is 0.
    """
    if not value:
        raise ValueError(NOT_ZERO_RULE)
    return value


def seconds(text: str) -> float:
    """Returns the seconds of a duration such as ``30m``, ``1h30m`` or ``30d``.

    Raises:
        ValueError: the text does not match :data:`DURATION_PATTERN`.
    """
    if re.fullmatch(DURATION_PATTERN, text) is None:
        raise ValueError(f"{text!r} is not a duration such as 30m, 12h or 30d")
    return math.fsum(float(n) * _SECONDS[unit] for n, unit in _DURATION_PART.findall(text))


def mebibytes(text: str) -> MiB:
    """Returns the MiB of an amount of memory such as ``4Gi`` or ``512Mi``, rounded up.

    Raises:
        ValueError: the text does not match :data:`MEMORY_PATTERN`.
    """
    match = _MEMORY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not an amount of memory such as 4Gi or 512Mi")
    return MiB(math.ceil(float(match[1]) * _BYTES[match[2]] / _MIB_BYTES))


def byte_count(text: str) -> int:
    """Returns the bytes of an amount such as ``1Ti`` or ``500M``, rounded up.

    Raises:
        ValueError: the text does not match :data:`MEMORY_PATTERN`.
    """
    match = _MEMORY.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not an amount of bytes such as 1Ti or 100Gi")
    return math.ceil(float(match[1]) * float(_BYTES[match[2]]))


def budget(text: str) -> NanoUsd:
    """Returns the nano-dollars of dollars such as ``0.50``.

    Raises:
        ValueError: the text does not match :data:`USD_PATTERN`.
    """
    if re.fullmatch(USD_PATTERN, text) is None:
        raise ValueError(f"{text!r} is not an amount of dollars such as 0.50")
    return nano_usd(text)
