"""The engine ``test.sleep``: waits without using a processor."""

import asyncio
from collections.abc import Mapping

from flowmesh_worker.engine_api import (
    HostSettings,
    Metrics,
    Progress,
    Result,
    TreeInput,
    Usage,
    Work,
)


class Sleep:
    """The engine ``test.sleep``."""

    capacity = 256

    async def load(self, components: Mapping[str, TreeInput], settings: HostSettings) -> None:
        """Loads nothing."""

    async def run(self, work: Work, progress: Progress) -> Result:
        """Waits ``seconds`` and returns ``value``; can be cancelled at any moment."""
        seconds = float(work.params["seconds"])
        progress(0.0, seconds, "seconds")
        await asyncio.sleep(seconds)
        return Result({"metrics": Metrics({"value": work.params.get("value")})}, Usage(units=1))

    async def close(self) -> None:
        """Frees nothing."""
