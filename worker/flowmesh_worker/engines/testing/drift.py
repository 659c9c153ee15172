"""The engine ``test.drift``: declares exact results and returns different ones each time."""

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
    """The engine ``test.drift``."""

    capacity = 256

    async def load(self, components: Mapping[str, TreeInput], settings: HostSettings) -> None:
        """Loads nothing."""

    async def run(self, work: Work, progress: Progress) -> Result:
        """Returns its parameter and a random value."""
        values = {"value": work.params.get("value"), "drift": secrets.token_hex(8)}
        return Result({"metrics": Metrics(values)}, Usage(units=1))

    async def close(self) -> None:
        """Frees nothing."""
