"""Rows to examples: the split, dropped rows and refusals."""

from collections.abc import Mapping
from typing import Any

import pytest

from flowmesh_core.errors import AttemptError, FailureKind
from flowmesh_worker.engines.train.examples import Example, assemble, held_out

PARAMS = {"test_size": 0.25, "seed": 7, "max_length": 16}
ROWS = [{"n": n} for n in range(20)]


def read(row: Mapping[str, Any], number: int) -> tuple[Example | None, int, bool]:
    return {"input_ids": [row["n"]]}, row["n"], row["n"] > 17


def read_short(row: Mapping[str, Any], number: int) -> tuple[Example | None, int, bool]:
    return (None, 0, True) if row["n"] % 2 else read(row, number)


def read_none(row: Mapping[str, Any], number: int) -> tuple[Example | None, int, bool]:
    return None, 0, True


def test_the_seed_holds_out_the_same_rows_each_time() -> None:
    assert held_out(20, 0.25, 7) == held_out(20, 0.25, 7)
    assert held_out(20, 0.25, 7) != held_out(20, 0.25, 8)
    assert len(held_out(20, 0.25, 7)) == 5
    assert held_out(20, 0.0, 7) == frozenset()
    assert len(held_out(10, 0.01, 7)) == 1, "a share is rounded up"


def test_every_row_is_either_trained_on_or_held_out_in_order() -> None:
    made = assemble(ROWS, PARAMS, read)
    train, test = ([e["input_ids"][0] for e in part] for part in (made.train, made.test))
    assert sorted(train + test) == list(range(20))
    assert train == sorted(train)
    assert set(test) == held_out(20, 0.25, 7)
    assert made.longest == 19
    assert made.counts == {"rows_truncated": 2, "rows_dropped": 0}


def test_rows_with_nothing_to_learn_are_dropped_and_counted() -> None:
    made = assemble(ROWS, PARAMS, read_short)
    assert len(made.train) + len(made.test) == 10
    assert made.counts["rows_dropped"] == 10
    assert made.longest == 18


def refused(rows: list[dict[str, Any]], reader: Any = read, **changes: Any) -> str:
    with pytest.raises(AttemptError) as error:
        assemble(rows, PARAMS | changes, reader)
    assert error.value.failure.kind is FailureKind.BAD_INPUT
    assert error.value.failure.remedy
    return error.value.failure.message


def test_too_few_rows_are_refused() -> None:
    assert refused([]) == "there are no rows to learn from"
    assert refused(ROWS[:1]) == "with.test_size: 0.25 of 1 rows leaves none to learn from"
    assert "20 of 20 rows were dropped" in refused(ROWS, read_none)
