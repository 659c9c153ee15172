"""Rows on a terminal: short cells, numbers to the right, and what is left out is said."""

import pytest

from flowmesh_cli.terminal import Terminal
from flowmesh_cli.views.rows import CELL_CHARS, COLUMNS_MAX, cell, show_rows


def test_a_value_is_one_short_line() -> None:
    assert cell("two\nlines\tand  spaces") == "two lines and spaces"
    assert cell({"a": [1, None, True]}) == '{"a":[1,null,true]}'
    assert cell(None) == "null"
    assert len(cell("x" * 1000)) == CELL_CHARS
    assert cell("x" * 1000).endswith("…")


def test_columns_that_are_left_out_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    row = {f"c{n}": n for n in range(COLUMNS_MAX + 2)}
    show_rows(Terminal(as_json=False), [row])
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].split() == [f"c{n}" for n in range(COLUMNS_MAX)]
    assert shown[-1] == f"  and 2 columns: c{COLUMNS_MAX}, c{COLUMNS_MAX + 1}"


def test_chosen_columns_are_shown_in_their_order(capsys: pytest.CaptureFixture[str]) -> None:
    show_rows(Terminal(as_json=False), [{"a": 1, "b": "x"}, {"a": 2}], columns=["b", "a"])
    assert [line.split() for line in capsys.readouterr().out.splitlines()] == [
        ["b", "a"],
        ["x", "1"],
        ["null", "2"],
    ]
