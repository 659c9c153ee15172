"""What notebooks show: all of it escaped, long values cut."""

from flowmesh_sdk.html import CELL_CHARACTERS, table_html


def test_names_and_values_are_escaped() -> None:
    shown = table_html([{"<b>": "<script>alert(1)</script>"}], title="<i>")
    assert "<script>" not in shown
    assert "<b>" not in shown
    assert "<i>" not in shown
    assert "&lt;script&gt;" in shown


def test_rows_of_different_columns_have_one_table() -> None:
    shown = table_html([{"a": 1}, {"b": None}], title="two")
    assert shown.count("<td>") == 4
    assert "None" not in shown


def test_a_long_value_is_cut() -> None:
    shown = table_html([{"a": "x" * 10_000}], title="one")
    assert "x" * CELL_CHARACTERS + "…" in shown
    assert len(shown) < 1000
