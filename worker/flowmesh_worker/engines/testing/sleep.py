"""The engine ``test.sleep``: waits without using a processor."""

import asyncio

from flowmesh_worker.engine_api import (
    Metrics,
    Progress,
    Result,
    Usage,
    Work,
)
from flowmesh_worker.engines.engine_base import EngineBase


class Sleep(EngineBase):
    """The engine ``test.sleep``."""

    capacity = 256

    async def run(self, work: Work, progress: Progress) -> Result:
        """Waits ``seconds`` and returns ``value``; can be cancelled at any moment."""
        seconds = float(work.params["seconds"])
        progress(0.0, seconds, "seconds")
        await asyncio.sleep(seconds)
        return Result({"metrics": Metrics({"value": work.params.get("value")})}, Usage(units=1))
