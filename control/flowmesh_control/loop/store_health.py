"""Why the control plane cannot write to its store at the moment; shown by API and metrics.

Everything that retries a store operation records the error here; it fades when none is recorded for
a while.
"""

import logging
import time

from flowmesh_control.public_errors import public_error
from flowmesh_core.errors import FlowMeshError

log = logging.getLogger("flowmesh.control")

FADES_S = 7.0
"""How long an error is shown: longer than the longest pause between two retries."""


class StoreHealth:
    """The last error of a store operation, while it is retried."""

    def __init__(self) -> None:
        self._text = ""
        self._met_s = float("-inf")

    def record_failure(self, error: FlowMeshError) -> None:
        """Records an error of an operation that will be retried; logs it if it is a new one."""
        shown = public_error(error)
        text = f"{shown.message}; {shown.remedy}" if shown.remedy else shown.message
        if text != self.text:
            log.warning("waiting for the store: %s", error)
        self._text, self._met_s = text, time.monotonic()

    @property
    def text(self) -> str:
        """The reason and the remedy; empty if the store works."""
        return self._text if time.monotonic() - self._met_s < FADES_S else ""
