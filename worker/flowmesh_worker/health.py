"""Files that a kubelet's probes check: the worker is alive, and it has joined.

Files instead of a port, since nothing connects to a worker. ``ready`` stays without a control plane
and while the worker has attempts: it continues them, and must not be the pod that Kubernetes
removes first. Only an idle worker that cannot reach the store is not ready any more.
"""

import asyncio
from pathlib import Path

BEAT_EVERY_S = 15.0


class Health:
    """The files ``alive``, touched while the event loop runs, and ``ready``."""

    def __init__(self, folder: Path | None) -> None:
        """Creates the folder and removes an earlier process's ``ready``; None writes no files."""
        self._folder = folder
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "ready").unlink(missing_ok=True)

    def mark_ready(self) -> None:
        """Records that the control plane has accepted the worker."""
        if self._folder is not None:
            (self._folder / "ready").touch()

    def mark_not_ready(self) -> None:
        """Records that the worker can do no work."""
        if self._folder is not None:
            (self._folder / "ready").unlink(missing_ok=True)

    async def touch_periodically(self) -> None:
        """Touches ``alive`` at a fixed interval until cancelled."""
        while self._folder is not None:
            (self._folder / "alive").touch()
            await asyncio.sleep(BEAT_EVERY_S)
