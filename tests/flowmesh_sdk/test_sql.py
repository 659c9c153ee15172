"""What a wrong query over rows is answered with."""

import pyarrow as pa
import pytest

from flowmesh_sdk.errors import FlowMeshError
from flowmesh_sdk.sql import UnknownTableError, query

TABLES = {name: lambda: pa.table({"a": [1, 2]}) for name in ("answers", "all", "left", "by-day")}


def refused(text: str) -> FlowMeshError:
    with pytest.raises(FlowMeshError) as caught:
        query(text, TABLES)
    return caught.value


@pytest.mark.parametrize("text", ["", " ", "delete from answers", "select 1; select 2"])
def test_what_is_not_one_select_is_answered_with_an_example(text: str) -> None:
    error = refused(text)
    assert error.message == "it is not one SELECT"
    assert error.remedy == 'for example: select * from "answers"'


@pytest.mark.parametrize("text", ["selec 1", "select * from answers where", "select 'all' from"])
def test_a_syntax_error_is_answered_with_an_example(text: str) -> None:
    error = refused(text)
    assert "syntax error" in error.message
    assert error.remedy == 'write it in DuckDB\'s SQL, for example: select * from "answers"'


@pytest.mark.parametrize("name", ["all", "left", "by-day"])
def test_a_table_whose_name_must_be_quoted(name: str) -> None:
    assert refused(f"select * from {name}").remedy == f'write the table in double quotes: "{name}"'
    assert query(f'select * from "{name}"', TABLES).num_rows == 2


def test_an_unknown_table_is_answered_with_the_tables() -> None:
    error = refused("select * from nosuch")
    assert isinstance(error, UnknownTableError)
    assert error.name == "nosuch"
    assert error.message == "there is no table 'nosuch'"
    assert error.remedy == 'the tables are "answers", "all", "left", "by-day"'


def test_an_unknown_column_is_answered_with_the_columns() -> None:
    error = refused("select x from answers")
    assert '"x" not found' in error.message
    assert error.remedy == 'Candidate bindings: "a"'


def test_an_unknown_function_does_not_list_the_tables() -> None:
    error = refused("select nosuch(1)")
    assert "nosuch does not exist" in error.message
    assert error.remedy == ""
