"""``data.sql``: a query over data sets, by DuckDB on one thread, without files or network."""

import asyncio
from collections.abc import Mapping
from typing import Any

from flowmesh_core.dataset import Schema
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
from flowmesh_worker.engines.data.database import (
    columns_of_tables,
    connect,
    load_tables,
    refuse_query,
    select,
    stop,
)
from flowmesh_worker.engines.data.sql_types import quoted


class Sql:
    """Answers queries."""

    capacity = 1

    def __init__(self) -> None:
        """Has no database yet."""
        self._memory_mib = 0
        self._connection: Any = None

    async def load(self, components: Mapping[str, TreeInput], settings: HostSettings) -> None:
        """Opens the database within the memory that it may use.

        Opening takes longer than most queries, so one database serves many. It can hold nothing
        over: a query is one SELECT, and its tables are dropped.
        """
        self._memory_mib = settings.memory_mib
        self._connection = connect(self._memory_mib)

    async def run(self, work: Work, progress: Progress) -> Result:
        """Answers ``query``; can be stopped while it runs."""
        connection = self._connection or connect(self._memory_mib)
        # A database that a query failed in is not used again.
        self._connection = None
        query = asyncio.ensure_future(asyncio.to_thread(answer, connection, work))
        try:
            table, schema, rows_read = await asyncio.shield(query)
        except asyncio.CancelledError:
            await stop(connection, query)
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


def answer(connection: Any, work: Work) -> tuple[Any, Schema, int]:
    """Loads the inputs as tables and answers the query.

    Returns:
        The result as an Arrow table, its schema, and how many rows were read.

    Raises:
        AttemptError: kind ``bad-input``, with DuckDB's message and the tables there are.
        MemoryError: the query needs more memory than there is.
    """
    query = str(work.params["query"])
    given = {n: v for n, v in work.inputs.items() if isinstance(v, DatasetInput)}
    tables = columns_of_tables(given)
    refuse_query(query, tables)
    rows_read = load_tables(connection, given)
    table, schema = select(connection, query, tables)
    for name in given:
        connection.execute(f"drop table {quoted(name)}")
    return table, schema, rows_read
