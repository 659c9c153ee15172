"""The tool ``sql``: SELECTs over the data sets, with the restrictions of ``data.sql``."""

import asyncio
from collections.abc import Mapping
from typing import Any

from flowmesh_core.catalog.sql_rules import tables_text
from flowmesh_worker.engine_api import DatasetInput
from flowmesh_worker.engines.agent.tools.shown_rows import shown_rows
from flowmesh_worker.engines.agent.tools.tool import CallSite, ToolError, schema_of
from flowmesh_worker.engines.data.database import (
    columns_of_tables,
    connect,
    load_tables,
    refuse_query,
    select,
    stop,
)
from flowmesh_worker.engines.data.memory_bound import bounded_growth, growth_bytes

_MEMORY_MIB = 512
_OTHER_BYTES = 2 << 30
"""What the model and other conversations in this process may add meanwhile."""
_ROWS_SHOWN = 100
_CHARS_MAX = 4000


class TableDatabase:
    """Data sets as tables of an in-memory database; runs one query at a time."""

    def __init__(self, given: Mapping[str, DatasetInput]) -> None:
        """Loads the tables; blocks."""
        self.tables = columns_of_tables(given)
        self.lock = asyncio.Lock()
        self._connection = connect(_MEMORY_MIB)
        load_tables(self._connection, given)

    def answer(self, query: str) -> str:
        """Returns the rows as text; raises as ``data.database`` does."""
        refuse_query(query, self.tables)
        with bounded_growth(growth_bytes(_MEMORY_MIB) + _OTHER_BYTES):
            found, _ = select(self._connection, query, self.tables)
        if isinstance(found, list):
            return f"({len(found):,} rows without columns)"
        text = shown_rows(found.slice(0, _ROWS_SHOWN).to_pylist())
        if found.num_rows > _ROWS_SHOWN:
            return f"{text}\n(the first {_ROWS_SHOWN} of {found.num_rows:,} rows)"
        return text or "(no rows)"

    async def stop(self, query: "asyncio.Future[Any]") -> None:
        """Interrupts the query that runs in a thread."""
        await stop(self._connection, query)


class SqlTool:
    """The tool ``sql``."""

    name = "sql"
    parameters = schema_of(
        {"query": {"type": "string", "description": "one SELECT", "maxLength": _CHARS_MAX}}
    )

    def __init__(self, database: TableDatabase, timeout_s: float) -> None:
        """Creates the tool; a query may take ``timeout_s``."""
        self._database = database
        self._timeout_s = timeout_s
        self.description = (
            f"Answers one SELECT in DuckDB's SQL over these {tables_text(database.tables)}."
        )

    async def call(self, arguments: Mapping[str, Any], place: CallSite) -> str:
        """Returns the result's rows as text."""
        async with self._database.lock:
            query = asyncio.ensure_future(
                asyncio.to_thread(self._database.answer, arguments["query"])
            )
            try:
                async with asyncio.timeout(self._timeout_s):
                    return await asyncio.shield(query)
            except TimeoutError:
                raise ToolError(f"the query took longer than {self._timeout_s:g} s") from None
            finally:
                if not query.done():
                    await self._database.stop(query)
                    query.exception()
