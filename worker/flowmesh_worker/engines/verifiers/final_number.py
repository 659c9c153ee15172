"""Finds the final number of an answer, in the same way as the graders of GSM8K.

The last number of a text is its answer: ``She has 3 + 4 = 7 apples. #### 7``. Thousands commas
belong to the number, and so does a minus sign unless it is between two operands; currency signs,
per cent signs and a full stop after the number do not.
"""

import re
from decimal import Decimal

_NUMBER = re.compile(
    r"(?:(?<![0-9A-Za-z.)\]}%])[-\u2212][$€£]?)?"  # a sign, not a subtraction
    r"(?:(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)"
    r"(?:[eE][-+]?[0-9]{1,3}(?![0-9A-Za-z]))?"
)
_DROPPED = str.maketrans({"\u2212": "-", ",": None, "$": None, "€": None, "£": None})


def final_number(value: object) -> Decimal | None:
    """Returns the last number of a text, or the value if it is a number; else None.

    Args:
        value: a text, a number, or anything else (which gives None).
    """
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float):
        found = Decimal(str(value))
        return found if found.is_finite() else None
    if not isinstance(value, str):
        return None
    last = None
    for match in _NUMBER.finditer(value):
        last = match
    if last is None:
        return None
    return Decimal(last.group().translate(_DROPPED))


def same_number(a: Decimal, b: Decimal, tolerance: float = 0.0) -> bool:
    """Whether two numbers differ by at most the tolerance; with 0, whether they are equal."""
    return a == b if not tolerance else abs(a - b) <= Decimal(str(tolerance))
