"""The engine ``test.drift``: declares exact results and returns different ones each time."""

import secrets

from flowmesh_worker.engine_api import (
    Metrics,
    Progress,
    Result,
    Usage,
    Work,
)
from flowmesh_worker.engines.engine_base import EngineBase


class Drift(EngineBase):
    """The engine ``test.drift``."""

    capacity = 256

    async def run(self, work: Work, progress: Progress) -> Result:
        """Returns its parameter and a random value."""
        values = {"value": work.params.get("value"), "drift": secrets.token_hex(8)}
        return Result({"metrics": Metrics(values)}, Usage(units=1))
