"""Says by files that the worker is alive, and that it was welcomed: for probes of a kubelet.

Files and not a port, since nothing dials a worker. ``ready`` stays once it is there: while the
control plane is away the worker goes on with what it runs, and must not be the one that is taken
away first.
"""

import asyncio
from pathlib import Path

BEAT_EVERY_S = 15.0


class Health:
    """The files ``alive``, touched while the event loop turns, and ``ready``."""

    def __init__(self, folder: Path | None) -> None:
        """Takes where the files are; None for nowhere. What an earlier process left is removed."""
        self._folder = folder
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "ready").unlink(missing_ok=True)

    def welcomed(self) -> None:
        """The control plane has welcomed the worker."""
        if self._folder is not None:
            (self._folder / "ready").touch()

    async def beat(self) -> None:
        """Says that the worker is alive until cancelled."""
        while self._folder is not None:
            (self._folder / "alive").touch()
            await asyncio.sleep(BEAT_EVERY_S)
