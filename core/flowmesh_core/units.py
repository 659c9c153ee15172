"""Domain numbers as types, so that a sum of dollars and seconds does not type-check.

Money is integer nano-dollars: sums are exact, and splits are exact with :func:`split_exactly`.
"""

from collections.abc import Sequence
from decimal import Decimal
from typing import NewType

from flowmesh_api.v1.digest import Digest as Digest  # noqa: PLC0414 - for plugins

NanoUsd = NewType("NanoUsd", int)
"""10^-9 US dollars, the only form in which money is added up."""
MiB = NewType("MiB", int)

DEFAULT_TRUST = 2
"""Trust of a pool that does not say; levels go from 0, somebody else's machines, to 3."""

NANO_PER_USD = 1_000_000_000


def nano_usd(usd: str | Decimal | float) -> NanoUsd:
    """Returns dollars as nano-dollars, rounded half to even.

    Args:
        usd: dollars; a string such as ``"0.50"`` is read exactly.

    Raises:
        decimal.InvalidOperation: the string is not a number.
    """
    return NanoUsd(int((Decimal(str(usd)) * NANO_PER_USD).to_integral_value()))


_PLACES = ((Decimal(1), 2), (Decimal("0.01"), 4), (Decimal("0.000001"), 6), (Decimal(0), 9))
"""Decimal places by the least amount that they are used for, in dollars."""


def usd_text(nanousd: int) -> str:
    """Returns an amount for people, with as many places as it needs: ``$1.25``, ``$0.000123``."""
    if not nanousd:
        return "$0"
    amount = Decimal(nanousd) / NANO_PER_USD
    places = next(places for least, places in _PLACES if abs(amount) >= least)
    return f"${amount:.{places}f}"


def bytes_text(count: int) -> str:
    """Returns an amount of bytes for people: ``512 bytes``, ``1.02 TiB``, ``100 GiB``."""
    size, unit = float(count), "bytes"
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if size < 1024 or unit == "TiB":  # noqa: PLR2004 - of one unit in the next
            break
        size /= 1024
    return f"{size:.2f}".rstrip("0").rstrip(".") + f" {unit}"


def split_exactly(amount: int, weights: Sequence[int]) -> list[int]:
    """Splits an integer amount by weights so that the parts add up to the amount exactly.

    The remainder goes one unit each to the first parts with a positive weight, so the order of the
    weights (by uid) decides; with only zero weights the split is equal.

    Args:
        amount: what to split, at least 0.
        weights: one weight per part, each at least 0; at least one part.

    Returns:
        One share per weight; their sum is ``amount``.

    Raises:
        ValueError: there is no part.
    """
    if not weights:
        raise ValueError("split_exactly needs at least one part")
    if len(weights) == 1:
        return [amount]
    effective = list(weights) if any(weights) else [1] * len(weights)
    total = sum(effective)
    shares = [amount * w // total for w in effective]
    rest = amount - sum(shares)
    for i, w in enumerate(effective):
        if rest == 0:
            break
        if w > 0:
            shares[i] += 1
            rest -= 1
    return shares
