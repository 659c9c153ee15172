"""``test.drift``: promises to repeat, and does not."""

import secrets
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


class Drift:
    """Returns something else each time."""

    capacity = 256

    async def load(self, components: Mapping[str, TreeInput], settings: HostSettings) -> None:
        """Loads nothing."""

    async def run(self, work: Work, progress: Progress) -> Result:
        """Adds to its parameter what no second run will give."""
        values = {"value": work.params.get("value"), "drift": secrets.token_hex(8)}
        return Result({"metrics": Metrics(values)}, Usage(units=1))

    async def close(self) -> None:
        """Frees nothing."""
