"""Turns rows into the examples of a trainer: templates, train-test split, refusals.

Nothing here needs a model. Every refusal names its row.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flowmesh_worker.engines.errors import bad_input
from flowmesh_worker.engines.prompts import RowTemplate

Example = dict[str, Any]
"""The training example of one row: token ids by the trainer's column names."""


@dataclass(frozen=True, slots=True)
class Examples:
    """The examples of one action.

    Attributes:
        train: the training examples.
        test: the examples that are held out.
        longest: tokens of the longest example, for the memory that a batch needs.
        counts: counts for ``metrics`` (``rows_truncated`` ...).
    """

    train: list[Example]
    test: list[Example]
    longest: int
    counts: Mapping[str, int] = field(default_factory=dict)


def templates(params: Mapping[str, Any], *names: str) -> dict[str, RowTemplate]:
    """Compiles the templates among these parameters that are set.

    Raises:
        AttemptError: bad input; a template is not valid.
    """
    return {n: RowTemplate(params[n], n) for n in names if params.get(n) is not None}


def require_rows(rows: Sequence[Mapping[str, Any]], test_size: float) -> None:
    """Refuses rows that cannot be split into training rows and held-out rows.

    Raises:
        AttemptError: bad input; there are no rows, or none would be left for training.
    """
    if not rows:
        raise bad_input("there are no rows to learn from", "check the step that makes the rows")
    test_count = math.ceil(test_size * len(rows))
    if test_count >= len(rows):
        raise bad_input(
            f"with.test_size: {test_size} of {len(rows)} rows leaves none to learn from",
            f"give at least {test_count + 1} rows, or a smaller test_size",
        )


def held_out(count: int, test_size: float, seed: int) -> frozenset[int]:
    """Returns the indices of the held-out rows, the same as ``datasets`` selects.

    Args:
        count: number of rows.
        test_size: the share, rounded up.
        seed: of the selection.
    """
    if not test_size:
        return frozenset()
    import numpy as np  # noqa: PLC0415 - slow to import

    # As in datasets.Dataset.train_test_split, so that a user's script selects the same rows.
    order = np.random.default_rng(seed).permutation(count)
    return frozenset(int(i) for i in order[: math.ceil(test_size * count)])


def assemble(
    rows: Sequence[Mapping[str, Any]],
    params: Mapping[str, Any],
    read: Callable[[Mapping[str, Any], int], tuple[Example | None, int, bool]],
) -> Examples:
    """Converts every row and splits the examples.

    Args:
        rows: in order.
        params: ``test_size`` and ``seed`` are used.
        read: a row and its number from 1 → the example (None if nothing in it can be learned),
            its tokens, and whether it was cut.

    Raises:
        AttemptError: bad input; a row cannot be converted, or none is left.
    """
    test_size, seed = float(params["test_size"]), int(params["seed"])
    require_rows(rows, test_size)
    test_rows = held_out(len(rows), test_size, seed)
    parts: tuple[list[Example], list[Example]] = ([], [])
    longest = cut = dropped = 0
    for number, row in enumerate(rows, 1):
        example, tokens, was_cut = read(row, number)
        cut += was_cut
        if example is None:
            dropped += 1
            continue
        longest = max(longest, tokens)
        parts[number - 1 in test_rows].append(example)
    if not parts[0] or (test_rows and not parts[1]):
        which = "held out" if parts[0] else "to learn from"
        raise bad_input(
            f"no row {which} has anything to learn: {dropped} of {len(rows)} rows were dropped, and"
            f" {cut} are longer than {params['max_length']} tokens",
            "raise max_length or shorten the rows; a pair of equal answers teaches nothing",
        )
    counts = {"rows_truncated": cut, "rows_dropped": dropped}
    return Examples(parts[0], parts[1], longest, counts)
