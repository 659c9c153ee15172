"""``data.sql``: a query over data sets, by DuckDB on one thread, without files or network.

One thread, because sums of floats on several differ from run to run.
"""

import asyncio
import re
from collections.abc import Mapping, Sequence
from typing import Any

import duckdb

from flowmesh_core.dataset import ColumnType, Schema
from flowmesh_core.errors import AttemptError, IdentityError
from flowmesh_worker.engine_api import (
    DatasetInput,
    HostSettings,
    Progress,
    Result,
    Rows,
    TreeInput,
    Usage,
    Work,
)
from flowmesh_worker.engines.data.refusals import (
    refusal,
    refuse_unsound,
    tables_text,
    varying_functions,
)
from flowmesh_worker.engines.data.sql_types import projection, quoted

_CONFIGURATION = {
    "threads": "1",
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
    "preserve_insertion_order": "true",
    "temp_directory": "",
}
_NO_COLUMN = "no column"
_LINE = re.compile(r"^LINE \d+: (.*)$", re.MULTILINE)


class Sql:
    """Answers queries."""

    capacity = 1

    def __init__(self) -> None:
        """Has no database yet."""
        self._memory_mib = 0
        self._connection: Any = None

    async def load(self, components: Mapping[str, TreeInput], settings: HostSettings) -> None:
        """Opens the database within the memory that it may use."""
        self._memory_mib = settings.memory_mib
        self._connection = self._connect()

    async def run(self, work: Work, progress: Progress) -> Result:
        """Answers ``query``; can be stopped while it runs."""
        connection = self._connection or self._connect()
        # A database that a query failed in is not used again.
        self._connection = None
        query = asyncio.ensure_future(asyncio.to_thread(answer, connection, work))
        try:
            table, schema, rows_read = await asyncio.shield(query)
        except asyncio.CancelledError:
            connection.interrupt()
            await asyncio.wait([query])
            raise
        finally:
            if query.done() and query.exception() is not None:
                connection.close()
        self._connection = connection
        return Result({"rows": Rows(table, schema)}, Usage(units=rows_read))

    async def close(self) -> None:
        """Closes the database."""
        if self._connection is not None:
            self._connection.close()

    def _connect(self) -> Any:
        # Opening takes longer than most queries, so one database serves many. It can hold nothing
        # over: a query is one SELECT, and its tables are dropped.
        connection = duckdb.connect(":memory:", config=_CONFIGURATION)
        if self._memory_mib:
            connection.execute(f"set memory_limit = '{self._memory_mib} MiB'")
        connection.execute("set lock_configuration = true")
        return connection


def answer(connection: Any, work: Work) -> tuple[Any, Schema, int]:
    """Loads the inputs as tables and answers the query.

    Returns:
        The result as an Arrow table, its schema, and how many rows were read.

    Raises:
        AttemptError: kind ``bad-input``, with DuckDB's message and the tables there are.
        MemoryError: the query needs more memory than there is.
    """
    query = str(work.params["query"])
    columns = {
        name: given.manifest.schema.names
        for name, given in work.inputs.items()
        if isinstance(given, DatasetInput)
    }
    parsed = connection.execute("select json_serialize_sql(?)", [query]).fetchall()[0][0]
    refuse_unsound(parsed, query, columns, varying_functions(duckdb.connect))
    _refuse_equal_names(columns)
    rows_read = sum(_create(connection, name, work.dataset(name)) for name in columns)
    try:
        table, schema = _select(connection, query)
    except duckdb.OutOfMemoryException as error:
        raise MemoryError(str(error)) from error
    except duckdb.Error as error:
        raise _refused(error, query, columns) from error
    except IdentityError as error:
        raise refusal(f"SQL: the result: {error.reason}", error.remedy) from error
    for name in columns:
        connection.execute(f"drop table {quoted(name)}")
    return table, schema, rows_read


def _refuse_equal_names(columns: Mapping[str, Sequence[str]]) -> None:
    """Columns that differ only in case would be read as one."""
    for table, names in columns.items():
        first: dict[str, str] = {}
        for name in names:
            other = first.setdefault(name.lower(), name)
            if other != name:
                raise refusal(
                    f"input {table!r} has the columns {other!r} and {name!r}, which are one in SQL",
                    "rename one of them in a step before, as code.python can",
                )


def _refused(error: Exception, query: str, columns: Mapping[str, Sequence[str]]) -> AttemptError:
    message, remedy = _message(error, query), "mend with.query; the lines above name its tables"
    bare = [name for name, names in columns.items() if not names]
    if bare:
        message = message.partition("\nCandidate bindings")[0]
        remedy = (
            f"input {bare[0]!r} has no rows and so no columns; what made it may give them, as "
            "`select ... where false` does, or the step may have a `when`"
        )
    return refusal(f"SQL: {message}", remedy, tables_text(columns))


def _message(error: Exception, query: str) -> str:
    """DuckDB's message with the line of the user's query: what runs is wrapped in another."""
    text = str(error).strip()
    found = _LINE.search(text)
    if found is None:
        return text
    lines = [i for i, line in enumerate(query.split("\n"), 1) if line.strip() == found[1].strip()]
    head = text[: found.start()].strip()
    return f"{head} (line {lines[0]}: {found[1].strip()})" if lines else head


def _create(connection: Any, name: str, given: DatasetInput) -> int:
    table = given.table()
    kinds = given.manifest.schema.types()
    select = ", ".join(
        f"cast({quoted(c)} as json) as {quoted(c)}" if k is ColumnType.JSON else quoted(c)
        for c, k in kinds.items()
    )
    if not select:  # DuckDB has no table without columns; this one is not shown
        source = f"select null as {quoted(_NO_COLUMN)} from range({table.num_rows})"
        connection.execute(f"create table {quoted(name)} as {source}")
        return int(table.num_rows)
    connection.register("incoming", table)
    connection.execute(f"create table {quoted(name)} as select {select} from incoming")
    connection.unregister("incoming")
    return int(table.num_rows)


def _select(connection: Any, query: str) -> tuple[Any, Schema]:
    relation = connection.sql(query)
    names, types = list(relation.columns), [str(t) for t in relation.types]
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise refusal(
            f"SQL: the result has {', '.join(map(repr, twice))} more than once",
            "give each column a name of its own (`... as name`)",
        )
    shown = [(n, t) for n, t in zip(names, types, strict=True) if n != _NO_COLUMN]
    if not shown:
        return [{}] * len(relation), Schema.of({})
    kinds, casts = projection(*zip(*shown, strict=True))
    table = relation.project(casts).to_arrow_table()
    return table, Schema.of(kinds)
