"""The engine ``data.sql``: a SELECT over data sets, by DuckDB, without files or network."""

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
from flowmesh_worker.engines.data.memory_bound import bounded_growth, growth_bytes
from flowmesh_worker.engines.data.sql_types import quoted


class Sql:
    """The engine ``data.sql``; see :class:`flowmesh_worker.engine_api.Engine`."""

    capacity = 1

    def __init__(self) -> None:
        self._memory_mib = 0
        self._connection: Any = None

    async def load(self, components: Mapping[str, TreeInput], settings: HostSettings) -> None:
        """Opens a database within the instance's memory limit.

        Opening takes longer than most queries, so one database serves many. No state is carried
        over: a query is one SELECT, and its tables are dropped.
        """
        self._memory_mib = settings.memory_mib
        self._connection = connect(self._memory_mib)

    async def run(self, work: Work, progress: Progress) -> Result:
        """Runs the query; a cancellation interrupts it."""
        connection = self._connection or connect(self._memory_mib)
        # A database in which a query failed is not used again: it may still have tables.
        self._connection = None
        query = asyncio.ensure_future(asyncio.to_thread(self._answer, connection, work))
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

    def _answer(self, connection: Any, work: Work) -> tuple[Any, Schema, int]:
        if not self._memory_mib:
            return answer(connection, work)
        with bounded_growth(growth_bytes(self._memory_mib)):
            return answer(connection, work)

    async def close(self) -> None:
        """Closes the database."""
        if self._connection is not None:
            self._connection.close()


def answer(connection: Any, work: Work) -> tuple[Any, Schema, int]:
    """Loads the inputs as tables and runs the query.

    Returns:
        The result as an Arrow table, its schema, and the number of rows read.

    Raises:
        AttemptError: kind ``bad-input``, with DuckDB's message and the existing tables.
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
