"""The engine ``test.noop``: does nothing, to measure the fabric's overhead."""

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


class Noop:
    """The engine ``test.noop``."""

    capacity = 256

    async def load(self, components: Mapping[str, TreeInput], settings: HostSettings) -> None:
        """Loads nothing."""

    async def run(self, work: Work, progress: Progress) -> Result:
        """Returns ``value``."""
        return Result({"metrics": Metrics({"value": work.params.get("value")})}, Usage(units=1))

    async def close(self) -> None:
        """Frees nothing."""
