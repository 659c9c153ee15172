"""Whether a number in a text can be read as a float without losing digits.

Used by the readers of JSON, CSV and Parquet, which refuse a number that cannot.
"""

from decimal import Decimal

_ALWAYS_EXACT_CHARS = 15
"""Every number of so many digits without an exponent reads back as it was written."""
_DIGITS_MAX = 800
"""More significant digits than any float has."""
SHOWN_CHARS = 24


def exact_float(text: str) -> float | None:
    """Returns a decimal number as a float; None where that would lose digits.

    No digit is lost where the float, printed with as many digits, is the number again: 0.1 and
    0.10000000000000001 are the same float, 3.141592653589793238 has more digits than a float.
    """
    number = float(text)
    if len(text) <= _ALWAYS_EXACT_CHARS and "e" not in text and "E" not in text:
        return number
    try:
        written = Decimal(text)
        if Decimal(repr(number)) == written:
            return number
        digits = min(len(written.as_tuple().digits), _DIGITS_MAX)
        printed = Decimal(format(number, f".{digits - 1}e"))
    except ArithmeticError:  # an exponent beyond those of Decimal, or an infinity
        return None
    return number if printed == written else None


def shown(text: str) -> str:
    """Returns a number for an error, shortened where it is long."""
    return text if len(text) <= SHOWN_CHARS else f"{text[:SHOWN_CHARS]}…"
