"""Engines that do nothing, whose hosts can be prepared; and one whose hosts cannot after all."""

from collections.abc import Mapping
from typing import Any

from flowmesh_worker.engines.preparations import Preparation
from flowmesh_worker.engines.testing.noop import Noop

COLOURS = Preparation("colours", ("colorsys",), 100)
WAVES = Preparation("waves", ("wave",), 100)
BROKEN = Preparation("broken", ("no_such_library",), 100)


class Preparing(Noop):
    """Names its preparation by its signature's parameters."""

    @staticmethod
    def prepares(params: Mapping[str, Any], *, on_devices: bool) -> Preparation:
        """Colours, unless it is told otherwise."""
        del on_devices
        return {"waves": WAVES, "broken": BROKEN}.get(params.get("library", ""), COLOURS)
