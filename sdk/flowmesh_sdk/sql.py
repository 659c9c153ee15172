"""SQL over rows, on this machine."""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from flowmesh_sdk.errors import FlowMeshError
from flowmesh_sdk.tables import missing, with_json

if TYPE_CHECKING:
    import duckdb
    import pyarrow

_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_UNKNOWN_TABLE = re.compile(r"Table with name (.+?) does not exist")
_NO_TABLE_NAMES = "select keyword_name from duckdb_keywords() where keyword_category in (?, ?)"


class UnknownTableError(FlowMeshError):
    """A query names a table that there is not.

    Attributes:
        name: the table's.
    """

    def __init__(self, name: str, tables: Iterable[str]) -> None:
        """Names the table and those that there are."""
        self.name = name
        remedy = f"the tables are {quoted(tables)}"
        super().__init__(f"there is no table {name!r}", where="the query", remedy=remedy)


def quoted(names: Iterable[str]) -> str:
    """Returns the names of tables as a query may write them."""
    return ", ".join(f'"{name}"' for name in names)


def query(text: str, tables: Mapping[str, "Callable[[], pyarrow.Table]"]) -> "pyarrow.Table":
    """Returns the rows of a SELECT over tables; it can read no file and no address.

    A json column of a table has DuckDB's type JSON, as in ``data.sql``, also in what is returned.

    Args:
        text: one SELECT.
        tables: reads each table; called for those that are named in the query.

    Raises:
        UnknownTableError: the query names another table.
        FlowMeshError: DuckDB is not installed, or the query is wrong.
    """
    try:
        import duckdb  # noqa: PLC0415 - optional, and slow to load
    except ImportError as e:
        raise missing("duckdb", "sql") from e
    with duckdb.connect() as database:
        try:
            for name, read in tables.items():
                if name in text:
                    database.register(name, _with_columns(name, read()))
            # The query may come from anywhere.
            database.execute("SET enable_external_access = false; SET lock_configuration = true")
            statements = duckdb.extract_statements(text)
            if [s.type for s in statements] != [duckdb.StatementType.SELECT]:
                raise _wrong("it is not one SELECT", _example(tables))
            found = database.sql(text)
            is_json = [str(kind) == "JSON" for kind in found.types]
            return with_json(found.to_arrow_table(), is_json)
        except duckdb.Error as e:
            raise _explained(e, database, text, tables) from e


def _with_columns(name: str, table: "pyarrow.Table") -> "pyarrow.Table":
    if table.num_columns:
        return table
    raise FlowMeshError(
        "it has no columns, since what made it had no rows and named none",
        where=f'table "{name}"',
        remedy="have the step that makes it name them, as `select ... where false` does",
    )


def _explained(
    error: "duckdb.Error", database: "duckdb.DuckDBPyConnection", text: str, tables: Iterable[str]
) -> FlowMeshError:
    """Returns DuckDB's error with a remedy where there is one."""
    message, *more = str(error).strip().splitlines()
    if unknown := _UNKNOWN_TABLE.search(message):
        return UnknownTableError(unknown[1].strip('"'), tables)
    if message.startswith("Parser Error"):
        if names := _unquoted(database, text, tables):
            return _wrong(message, f"write the table in double quotes: {quoted(names)}")
        return _wrong(message, f"write it in DuckDB's SQL, {_example(tables)}")
    return _wrong(message, next((la for la in more if la.startswith("Candidate bindings")), ""))


def _example(tables: Iterable[str]) -> str:
    return f"for example: select * from {quoted(list(tables)[:1])}"


def _unquoted(database: "duckdb.DuckDBPyConnection", text: str, tables: Iterable[str]) -> list[str]:
    """Returns the tables that a query reads without the quotes that their names need."""
    found = database.execute(_NO_TABLE_NAMES, ["reserved", "type_function"]).fetchall()
    words = {word for (word,) in found}
    return [
        name
        for name in tables
        if (name.lower() in words or not _PLAIN_NAME.fullmatch(name))
        and re.search(rf"\b(from|join)\s+{re.escape(name)}(?!\w)", text, re.IGNORECASE)
    ]


def _wrong(message: str, remedy: str) -> FlowMeshError:
    return FlowMeshError(message, where="the query", remedy=remedy)
