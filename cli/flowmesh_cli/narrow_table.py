"""Fits a table to a narrow terminal, so that a row stays a line: for :mod:`flowmesh_cli.terminal`.

The least important columns are left out, and then long values are cut.
"""

from collections.abc import Collection, Sequence

from rich.cells import cell_len

_GAP = 2
_CUT_LEAST, _FOLDED_LEAST = 12, 24
"""Of columns whose values are cut, and of prose, which is folded: others are left out below it."""
_NARROWEST = 8


def fitted(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    *,
    fixed: Collection[str],
    cut: Collection[str],
    optional: Sequence[str],
) -> dict[int, int]:
    """Returns the columns that stay, by their number, with their widths.

    Args:
        headings: one per column.
        rows: the cells.
        width: of the terminal.
        fixed: headings of columns that are never narrower than their longest value.
        cut: headings of columns whose values may be cut.
        optional: headings of columns that may be left out, the least important first; those that
            say nothing go before all others.
    """
    columns = list(zip(*rows, strict=True)) or [()] * len(headings)
    widths = [max(map(_width, [h, *c])) for h, c in zip(headings, columns, strict=True)]
    is_fixed = [h in fixed for h in headings]
    least = [
        natural if stays else min(natural, _CUT_LEAST if h in cut else _FOLDED_LEAST)
        for h, natural, stays in zip(headings, widths, is_fixed, strict=True)
    ]
    kept = dict(enumerate(widths))
    candidates = [headings.index(heading) for heading in optional]
    for number in sorted(
        candidates, key=lambda n: any(c not in ("", "-", "0") for c in columns[n])
    ):
        if _total([least[n] for n in kept]) <= width:
            break
        del kept[number]
    _narrow(kept, width, least)
    narrowest = zip(least, is_fixed, strict=True)
    _narrow(kept, width, [n if stays else min(n, _NARROWEST) for n, stays in narrowest])
    return kept


def _narrow(kept: dict[int, int], width: int, least: Sequence[int]) -> None:
    """Narrows the widest columns until they fit, or have their least widths."""
    while _total(kept.values()) > width:
        wide = [n for n in kept if kept[n] > least[n]]
        if not wide:
            return
        kept[max(wide, key=kept.__getitem__)] -= 1


def _width(cell: str) -> int:
    return max(map(cell_len, cell.splitlines()), default=0)


def _total(widths: Collection[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)
