"""A DuckDB database that answers SELECTs over data sets, without files or network.

Used by ``data.sql`` and by the tool ``sql`` of ``llm.agent``. It uses one thread, because sums of
floats on several threads differ between runs.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import duckdb
import pyarrow as pa

from flowmesh_core.catalog.sql_rules import (
    CONFIGURATION,
    UnsoundQueryError,
    refuse_equal_names,
    refuse_equal_results,
    refuse_unsound,
    sql_message,
    tables_text,
)
from flowmesh_core.dataset import ColumnType, Schema
from flowmesh_core.dataset.sql_binding import NO_COLUMN
from flowmesh_core.dataset.sql_types import projection, quoted
from flowmesh_core.errors import AttemptError, Failure, FailureKind, IdentityError
from flowmesh_core.identity import canonical_bytes
from flowmesh_worker.engine_api import DatasetInput

Tables = Mapping[str, Sequence[str]]
"""The names of columns by table."""

_LISTS = frozenset({ColumnType.LIST_INT, ColumnType.LIST_FLOAT, ColumnType.LIST_STRING})
_INTERRUPT_EVERY_S = 0.05


def connect(memory_mib: int) -> Any:
    """Opens an empty in-memory database.

    Args:
        memory_mib: its memory limit; 0 for none.
    """
    connection = duckdb.connect(":memory:", config=CONFIGURATION)
    connection.execute("set TimeZone = 'UTC'")  # not a worker's: the result would depend on it
    if memory_mib:
        connection.execute(f"set memory_limit = '{memory_mib} MiB'")
    connection.execute("set lock_configuration = true")
    return connection


def columns_of_tables(given: Mapping[str, DatasetInput]) -> Tables:
    """Returns the columns of each data set."""
    return {name: dataset.manifest.schema.names for name, dataset in given.items()}


def refusal(message: str, remedy: str = "", detail: str = "") -> AttemptError:
    """Returns a failure of kind ``bad-input``."""
    return AttemptError(Failure(FailureKind.BAD_INPUT, message, remedy, detail))


def refuse_query(query: str, tables: Tables) -> None:
    """Refuses a query that is not one SELECT over the tables, before anything is loaded.

    Raises:
        AttemptError: kind ``bad-input``; names what is wrong and where.
    """
    try:
        refuse_unsound(query, tables)
        refuse_equal_names(tables)
    except UnsoundQueryError as e:
        raise refusal(e.message, e.remedy, e.detail) from e


def load_tables(connection: Any, given: Mapping[str, DatasetInput]) -> int:
    """Creates a table for every data set; returns the number of rows."""
    return sum(_create(connection, name, dataset) for name, dataset in given.items())


def select(connection: Any, query: str, tables: Tables) -> tuple[Any, Schema]:
    """Runs a query that :func:`refuse_query` has accepted.

    Returns:
        The result as an Arrow table, and its schema.

    Raises:
        AttemptError: kind ``bad-input``, with DuckDB's message and the existing tables.
        MemoryError: the query needs more memory than there is.
    """
    try:
        return _select(connection, query)
    except duckdb.OutOfMemoryException as error:
        raise MemoryError(str(error)) from error
    except duckdb.Error as error:
        raise _refused(error, query, tables) from error
    except IdentityError as error:
        raise refusal(f"SQL: the result: {error.reason}", error.remedy) from error


async def stop(connection: Any, query: "asyncio.Future[Any]") -> None:
    """Interrupts a query that runs in a thread, and waits for its end.

    It interrupts repeatedly: an interrupt that arrives before the query starts, while its tables
    are loaded, has no effect.
    """
    while not query.done():
        connection.interrupt()
        await asyncio.wait([query], timeout=_INTERRUPT_EVERY_S)


def _refused(error: Exception, query: str, columns: Tables) -> AttemptError:
    message, remedy = sql_message(error, query), "correct with.query; see the tables above"
    bare = [name for name, names in columns.items() if not names]
    if bare:
        message = message.partition("\nCandidate bindings")[0]
        remedy = (
            f"input {bare[0]!r} has no rows and so no columns: have the step that makes it return "
            "them, as `select ... where false` does, or give this step a `when`"
        )
    return refusal(f"SQL: {message}", remedy, tables_text(columns))


def _create(connection: Any, name: str, given: DatasetInput) -> int:
    table = given.table()
    kinds = given.manifest.schema.types()
    select = ", ".join(
        f"cast({quoted(c)} as json) as {quoted(c)}" if k is ColumnType.JSON else quoted(c)
        for c, k in kinds.items()
    )
    if not select:
        source = f"select null as {quoted(NO_COLUMN)} from range({table.num_rows})"
        connection.execute(f"create table {quoted(name)} as {source}")
        return int(table.num_rows)
    connection.register("incoming", table)
    connection.execute(f"create table {quoted(name)} as select {select} from incoming")
    connection.unregister("incoming")
    return int(table.num_rows)


def _select(connection: Any, query: str) -> tuple[Any, Schema]:
    relation = connection.sql(query)
    names, types = list(relation.columns), [str(t) for t in relation.types]
    try:
        refuse_equal_results(names)
    except UnsoundQueryError as e:
        raise refusal(e.message, e.remedy) from e
    shown = [(n, t) for n, t in zip(names, types, strict=True) if n != NO_COLUMN]
    if not shown:
        return [{}] * len(relation), Schema.of({})
    kinds, casts = projection(*zip(*shown, strict=True))
    table = relation.project(casts).to_arrow_table()
    for name in [n for n, kind in kinds.items() if kind in _LISTS]:
        if table[name].combine_chunks().flatten().null_count:
            table, kinds[name] = _as_json(table, name), ColumnType.JSON
    return table, Schema.of(kinds)


def _as_json(table: Any, name: str) -> Any:
    """Returns a table with a column of lists as JSON: a typed list has no null inside."""
    lists = table[name].to_pylist()
    texts = [None if row is None else canonical_bytes(row).decode() for row in lists]
    return table.set_column(table.column_names.index(name), name, pa.array(texts, pa.string()))
