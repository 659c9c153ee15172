"""The base class of engines that score a whole data set at once.

Chunks are not enough: a confidence interval cannot be computed from those of its chunks.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from flowmesh_core.dataset import Schema
from flowmesh_worker.engine_api import (
    DatasetInput,
    Metrics,
    Progress,
    Result,
    Rows,
    Usage,
    Work,
)
from flowmesh_worker.engines.engine_base import EngineBase
from flowmesh_worker.engines.errors import bad_input


class Scorer(EngineBase, ABC):
    """An engine with an input ``rows`` and the outputs ``metrics`` and ``rows``."""

    capacity = 4

    async def run(self, work: Work, progress: Progress) -> Result:
        """Scores the rows in a thread, so that other actions of this host continue."""
        given = work.dataset("rows")
        metrics, rows = await asyncio.to_thread(self.score, work.params, given)
        usage = Usage(units=given.manifest.row_count)
        return Result({"metrics": Metrics(metrics), "rows": rows}, usage)

    @abstractmethod
    def score(self, params: Mapping[str, Any], given: DatasetInput) -> tuple[dict[str, Any], Rows]:
        """Returns the metrics of the rows, and the output rows.

        Raises:
            AttemptError: kind ``bad-input``; names the row and the column.
        """


def require_columns(schema: Schema, *wanted: str, port: str = "rows") -> None:
    """Refuses rows without the named columns.

    Raises:
        AttemptError: kind ``bad-input``; names the missing and the existing columns.
    """
    missing = [name for name in wanted if name not in schema.names]
    if missing:
        raise bad_input(
            f"input {port!r} has no column {', '.join(map(repr, missing))}",
            f"its columns are {', '.join(schema.names) or 'none'}",
        )
