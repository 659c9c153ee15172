"""Engines that do nothing, whose hosts can be prepared; and one whose hosts cannot after all."""

from collections.abc import Mapping
from typing import Any

from flowmesh_worker.engines.preload import HostPreload
from flowmesh_worker.engines.testing.noop import Noop

COLOURS = HostPreload("colours", ("colorsys",), 100)
WAVES = HostPreload("waves", ("wave",), 100)
BROKEN = HostPreload("broken", ("no_such_library",), 100)


class Preparing(Noop):
    """Names its preparation by its signature's parameters."""

    @staticmethod
    def prepares(params: Mapping[str, Any], *, on_devices: bool) -> HostPreload:
        """Colours, unless it is told otherwise."""
        del on_devices
        if params.get("library") == "raises":
            raise KeyError("implementation")
        return {"waves": WAVES, "broken": BROKEN}.get(params.get("library", ""), COLOURS)
