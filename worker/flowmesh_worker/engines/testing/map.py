"""The engine ``test.map``: a cheap row-wise engine, to test the reuse of chunks."""

from flowmesh_core.dataset import ColumnType, Schema, row_digest
from flowmesh_core.identity import digest_value
from flowmesh_worker.engine_api import (
    Metrics,
    Progress,
    Result,
    Rows,
    Usage,
    Work,
)
from flowmesh_worker.engines.engine_base import EngineBase


class Map(EngineBase):
    """The engine ``test.map``."""

    capacity = 256

    async def run(self, work: Work, progress: Progress) -> Result:
        """Adds a column with the digest of the row and of ``value``, row by row."""
        given = work.dataset("rows")
        schema = given.manifest.schema
        output, value = str(work.params["output"]), work.params.get("value")
        rows = [
            {**row, output: digest_value("test.map", [value, row_digest(row, schema)])}
            for row in given.rows()
        ]
        kinds = schema.types() | {output: ColumnType.STRING}
        return Result(
            {"rows": Rows(rows, Schema.of(kinds)), "metrics": Metrics({"count": len(rows)})},
            Usage(units=len(rows)),
        )
