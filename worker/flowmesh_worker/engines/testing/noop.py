"""The engine ``test.noop``: does nothing, to measure the fabric's overhead."""

from flowmesh_worker.engine_api import (
    Metrics,
    Progress,
    Result,
    Usage,
    Work,
)
from flowmesh_worker.engines.engine_base import EngineBase


class Noop(EngineBase):
    """The engine ``test.noop``."""

    capacity = 256

    async def run(self, work: Work, progress: Progress) -> Result:
        """Returns ``value``."""
        return Result({"metrics": Metrics({"value": work.params.get("value")})}, Usage(units=1))
