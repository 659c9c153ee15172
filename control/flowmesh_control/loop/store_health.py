"""What keeps the control plane from writing to its store, for whoever asks how the fabric is.

Told by everything that tries again while the store refuses; forgotten when nobody has told of it
for a while.
"""

import logging
import time

from flowmesh_core.errors import FlowMeshError

log = logging.getLogger("flowmesh.control")

FADES_S = 7.0
"""Longer than the longest pause between two tries."""


class StoreHealth:
    """The last refusal, while it lasts."""

    def __init__(self) -> None:
        """Nothing has gone wrong yet."""
        self._text = ""
        self._met_s = float("-inf")

    def met(self, error: FlowMeshError) -> None:
        """A write was refused and will be tried again; said in the log when it is news."""
        text = f"{error.message}; {error.remedy}" if error.remedy else error.message
        if text != self.text:
            log.warning("waiting for the store: %s", error)
        self._text, self._met_s = text, time.monotonic()

    @property
    def text(self) -> str:
        """The reason and the remedy; empty where all is well."""
        return self._text if time.monotonic() - self._met_s < FADES_S else ""
