"""The engine's class. Only workers load it, in a separate process."""

from collections.abc import Mapping

from flowmesh_core.dataset import ColumnType, Schema
from flowmesh_core.errors import AttemptError, Failure, FailureKind
from flowmesh_worker.engine_api import (
    HostSettings,
    Metrics,
    Progress,
    Result,
    Rows,
    TreeInput,
    Usage,
    Work,
)


class WordCount:
    """Adds a column of counts."""

    capacity = 4

    async def load(self, components: Mapping[str, TreeInput], settings: HostSettings) -> None:
        """A model at a port with `component=True` would be loaded here, once for many actions."""

    async def run(self, work: Work, progress: Progress) -> Result:
        """Does one action: here, one chunk of rows."""
        given = work.dataset("rows")
        column, output = str(work.params["column"]), str(work.params["output"])
        schema = given.manifest.schema
        if schema.types().get(column) is not ColumnType.STRING:
            raise AttemptError(
                Failure(
                    FailureKind.BAD_INPUT,  # never tried again: the user mends it
                    f"column {column!r} holds no text",
                    f"its columns are {', '.join(schema.names)}",
                )
            )
        rows = [{**row, output: len((row[column] or "").split())} for row in given.rows()]
        words = sum(row[output] for row in rows)
        kinds = schema.types() | {output: ColumnType.INT}
        return Result(
            {"rows": Rows(rows, Schema.of(kinds)), "metrics": Metrics({"words": words})},
            Usage(units=len(rows)),
        )

    async def close(self) -> None:
        """Frees what `load` has taken; the process ends afterwards."""
