"""Draws points as text, for terminals."""

from collections.abc import Sequence

WIDTH, HEIGHT = 64, 16
_MARK = "•"


def chart(points: Sequence[tuple[float, float]], *, x: str, y: str) -> list[str]:
    """Returns the lines of a chart; both axes go from the least value to the largest.

    Args:
        points: at least one, of finite numbers.
        x: the name of the horizontal axis.
        y: the name of the vertical axis.
    """
    xs, ys = zip(*points, strict=True)
    rows = [[" "] * WIDTH for _ in range(HEIGHT)]
    for at, value in points:
        rows[HEIGHT - 1 - _place(value, ys, HEIGHT)][_place(at, xs, WIDTH)] = _MARK
    high, low = f"{max(ys):.4g}", f"{min(ys):.4g}"
    margin = max(len(high), len(low))
    labels = [high, *[""] * (HEIGHT - 2), low]
    pairs = zip(labels, rows, strict=True)
    ends = f"{min(xs):.4g}", f"{max(xs):.4g}"
    axis = f"{ends[0]}{ends[1]:>{WIDTH - len(ends[0])}}"
    indent = " " * margin
    return [
        f"{indent} {y}",
        *(f"{label:>{margin}} │{''.join(row).rstrip()}" for label, row in pairs),
        f"{indent} └{'─' * WIDTH}",
        f"{indent}  {axis}  {x}",
    ]


def _place(value: float, values: Sequence[float], cells: int) -> int:
    """Returns the cell of a value, from 0 for the least one."""
    low, high = min(values), max(values)
    return 0 if high == low else round((value - low) / (high - low) * (cells - 1))
