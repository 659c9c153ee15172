"""From rows to the examples of a trainer: templates, the split, and the refusals that belong there.

Nothing here needs a model. Rows keep their number, so that every refusal names its row.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flowmesh_worker.engines.errors import bad_input
from flowmesh_worker.engines.prompts import RowTemplate

Example = dict[str, Any]
"""What a trainer learns from one row: token ids by the names that the trainer gives them."""


@dataclass(frozen=True, slots=True)
class Examples:
    """The examples of one action.

    Attributes:
        train: to learn from.
        test: held out.
        longest: tokens of the longest of them, for the memory that a batch needs.
        counts: figures for ``metrics`` (``rows_truncated`` ...).
    """

    train: list[Example]
    test: list[Example]
    longest: int
    counts: Mapping[str, int] = field(default_factory=dict)


def templates(params: Mapping[str, Any], *names: str) -> dict[str, RowTemplate]:
    """The templates among these parameters that are given, compiled.

    Raises:
        AttemptError: bad input; one of them is no template.
    """
    return {n: RowTemplate(params[n], n) for n in names if params.get(n) is not None}


def require_rows(rows: Sequence[Mapping[str, Any]], test_size: float) -> None:
    """Refuses what cannot be split into rows to learn from and rows to hold out.

    Raises:
        AttemptError: bad input.
    """
    if not rows:
        raise bad_input("there are no rows to learn from", "check the step that makes the rows")
    held = math.ceil(test_size * len(rows))
    if held >= len(rows):
        raise bad_input(
            f"with.test_size: {test_size} of {len(rows)} rows leaves none to learn from",
            f"give at least {held + 1} rows, or a smaller test_size",
        )


def held_out(count: int, test_size: float, seed: int) -> frozenset[int]:
    """Which rows are held out, counted from 0: those that ``datasets`` would hold out.

    Args:
        count: of all rows.
        test_size: the share, rounded up.
        seed: draws them.
    """
    if not test_size:
        return frozenset()
    import numpy as np  # noqa: PLC0415 - slow to import

    # datasets.Dataset.train_test_split draws in the same way, so that a script finds the same rows.
    order = np.random.default_rng(seed).permutation(count)
    return frozenset(int(i) for i in order[: math.ceil(test_size * count)])


def assemble(
    rows: Sequence[Mapping[str, Any]],
    params: Mapping[str, Any],
    read: Callable[[Mapping[str, Any], int], tuple[Example | None, int, bool]],
) -> Examples:
    """Reads every row and splits the examples.

    Args:
        rows: in order.
        params: ``test_size`` and ``seed`` are read.
        read: a row and its number from 1 → the example (None where nothing of it can be learned),
            its tokens, and whether it was cut.

    Raises:
        AttemptError: bad input; a row cannot be read, or none is left.
    """
    test_size, seed = float(params["test_size"]), int(params["seed"])
    require_rows(rows, test_size)
    held = held_out(len(rows), test_size, seed)
    parts: tuple[list[Example], list[Example]] = ([], [])
    longest = cut = dropped = 0
    for number, row in enumerate(rows, 1):
        example, tokens, was_cut = read(row, number)
        cut += was_cut
        if example is None:
            dropped += 1
            continue
        longest = max(longest, tokens)
        parts[number - 1 in held].append(example)
    if not parts[0] or (held and not parts[1]):
        which = "held out" if parts[0] else "to learn from"
        raise bad_input(
            f"no row {which} has anything to learn: {dropped} of {len(rows)} rows were dropped, and"
            f" {cut} are longer than {params['max_length']} tokens",
            "raise max_length or shorten the rows; a pair of equal answers teaches nothing",
        )
    counts = {"rows_truncated": cut, "rows_dropped": dropped}
    return Examples(parts[0], parts[1], longest, counts)
