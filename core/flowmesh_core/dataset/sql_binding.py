"""Binds queries to tables of known columns, before there are rows.

DuckDB itself binds: the tables are created empty, with the types that they will have, and the query
is not run. So a column that does not exist is refused when a workflow is admitted, and the columns
of the result are known to the steps after it.
"""

from collections.abc import Mapping
from typing import Any

from flowmesh_core.catalog.sql_rules import (
    UnsoundQueryError,
    parser,
    refuse_equal_names,
    refuse_equal_results,
    sql_message,
    tables_text,
)
from flowmesh_core.dataset.schema import ColumnType
from flowmesh_core.dataset.sql_types import column_type, quoted, table_type

NO_COLUMN = "no column"
"""The column of a table without columns, which DuckDB does not have; it is never shown."""
_LISTS = frozenset({ColumnType.LIST_INT, ColumnType.LIST_FLOAT, ColumnType.LIST_STRING})


def bound_columns(
    query: str, tables: Mapping[str, Mapping[str, ColumnType]]
) -> dict[str, ColumnType | None] | None:
    """Returns the columns of a query's result with their types.

    The type of a list is None, since a list that has a null inside becomes JSON.

    Args:
        query: one that ``sql_rules.refuse_unsound`` has accepted.
        tables: the columns of every table with their types; none where it has no rows.

    Returns:
        The columns; None where DuckDB cannot tell without rows.

    Raises:
        UnsoundQueryError: the query does not fit the tables.
    """
    import duckdb  # noqa: PLC0415 - slow to load

    refuse_equal_names(tables)
    cursor = parser().cursor()
    try:
        for table, columns in tables.items():
            declared = ", ".join(f"{quoted(c)} {table_type(k)}" for c, k in columns.items())
            declared = declared or f"{quoted(NO_COLUMN)} integer"
            cursor.execute(f"create temp table {quoted(table)} ({declared})")
        relation = cursor.sql(query)
        names, types = list(relation.columns), [str(t) for t in relation.types]
    except (duckdb.BinderException, duckdb.CatalogException) as error:
        message = " ".join(sql_message(_with_line(cursor, query) or error, query).split())
        remedy = f"correct the query; {tables_text(tables)}"
        raise UnsoundQueryError(f"SQL: {message}", remedy) from error
    except duckdb.Error:
        return None
    finally:
        cursor.close()
    refuse_equal_results(names)
    found = {n: column_type(k)[0] for n, k in zip(names, types, strict=True) if n != NO_COLUMN}
    return {name: None if kind in _LISTS else kind for name, kind in found.items()}


def _with_line(cursor: Any, query: str) -> Exception | None:
    """Returns the error of a query that does not bind, with the line that it is about."""
    import duckdb  # noqa: PLC0415 - slow to load

    try:
        cursor.execute(f"describe\n{query}")
    except duckdb.Error as error:
        found: Exception = error
        return found
    return None
