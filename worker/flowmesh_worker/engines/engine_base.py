"""The base of engines that load nothing, or have nothing to free."""

from collections.abc import Mapping

from flowmesh_worker.engine_api import HostSettings, TreeInput


class EngineBase:
    """Loads and frees nothing; an engine overrides what it needs (:class:`engine_api.Engine`)."""

    async def load(self, components: Mapping[str, TreeInput], settings: HostSettings) -> None:
        """Loads nothing."""

    async def close(self) -> None:
        """Frees nothing."""
