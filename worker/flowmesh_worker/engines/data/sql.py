"""The engine ``data.sql``: a SELECT over data sets, by DuckDB, without files or network."""

import asyncio
from collections.abc import Mapping
from typing import Any

from flowmesh_core.dataset import ColumnType, Schema
from flowmesh_core.dataset.sql_types import quoted
from flowmesh_worker.engine_api import (
    DatasetInput,
    HostSettings,
    Metrics,
    Output,
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
from flowmesh_worker.engines.errors import bad_input


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
        outputs: dict[str, Output] = {"rows": Rows(table, schema)}
        if work.params.get("metrics"):
            outputs["metrics"] = Metrics(_only_row(table, schema))
        return Result(outputs, Usage(units=rows_read))

    def _answer(self, connection: Any, work: Work) -> tuple[Any, Schema, int]:
        if not self._memory_mib:
            return answer(connection, work)
        with bounded_growth(growth_bytes(self._memory_mib)):
            return answer(connection, work)

    async def close(self) -> None:
        """Closes the database."""
        if self._connection is not None:
            self._connection.close()


def _only_row(table: Any, schema: Schema) -> dict[str, Any]:
    """Returns the one row of a result, for metrics.

    Raises:
        AttemptError: kind ``bad-input``; there are none or several, or it has no JSON.
    """
    from flowmesh_store.datasets import table_rows  # noqa: PLC0415 - only here

    if len(table) != 1 or not schema.columns:
        raise bad_input(
            f"the query returns {len(table)} rows, and with metrics: true it must return one",
            "aggregate the rows, or leave metrics out and read the count in conditions",
        )
    if blobs := [c.name for c in schema.columns if c.type is ColumnType.BYTES]:
        raise bad_input(
            f"the metric {blobs[0]!r} is a column of bytes", "cast it, for example with hex()"
        )
    (row,) = table_rows(table)
    return row


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
