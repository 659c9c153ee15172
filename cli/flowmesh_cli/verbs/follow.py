"""Follows runs until they have ended: shows progress, cancels on Ctrl-C, survives a dead owner."""

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from flowmesh_api.v1.enums import ENDED_PHASES
from flowmesh_api.v1.fabric import FabricStatus
from flowmesh_api.v1.runs import RunStatus
from flowmesh_cli.connection.client import ApiClient, FabricGoneError
from flowmesh_cli.interrupts import Interrupts
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.views.plain_progress import LineProgress

POLL_S = 0.2
_PATIENCE_S = 30.0


class ProgressView(Protocol):
    """Shows how runs stand."""

    def update(self, runs: Sequence[RunStatus], fabric: FabricStatus | None, now_s: float) -> None:
        """Takes the state in."""
        ...

    def note(self, text: str) -> None:
        """Says something beside."""
        ...

    def close(self) -> None:
        """Ends."""
        ...


class JsonProgress:
    """A line of JSON whenever a run has changed."""

    def __init__(self, terminal: Terminal) -> None:
        """Takes where to write."""
        self._terminal = terminal
        self._last: dict[str, RunStatus] = {}

    def update(self, runs: Sequence[RunStatus], fabric: FabricStatus | None, now_s: float) -> None:
        """Writes what has changed."""
        del fabric, now_s
        for run in runs:
            if self._last.get(run.uid) != run:
                self._last[run.uid] = run
                self._terminal.line(run)

    def note(self, text: str) -> None:
        """Beside the documents."""
        self._terminal.note(text)

    def close(self) -> None:
        """Nothing stands open."""


def progress_for(terminal: Terminal) -> ProgressView:
    """Redrawn where somebody watches, else lines."""
    if terminal.is_live:
        # Imported here: drawing is for terminals alone.
        from flowmesh_cli.views.live_progress import LiveProgress  # noqa: PLC0415

        return LiveProgress(terminal.err)
    return LineProgress(terminal.note)


class RunFollower:
    """Watches some runs."""

    def __init__(
        self,
        http: Callable[[], ApiClient],
        again: Callable[[], None],
        progress: ProgressView,
        interrupts: Interrupts,
    ) -> None:
        """Takes the fabric, how to find it anew, who shows, and Ctrl-C."""
        self._http = http
        self._again = again
        self._progress = progress
        self._interrupts = interrupts

    def follow(self, uids: Sequence[str], *, cancels: bool) -> list[RunStatus]:
        """Returns the runs once all have ended, or at Ctrl-C where it does not cancel them.

        Raises:
            FabricGoneError: the fabric stayed away.
        """
        statuses: dict[str, RunStatus] = {}
        cancelled = False
        while True:
            try:
                self._look(uids, statuses)
                if all(s.phase in ENDED_PHASES for s in statuses.values()):
                    return [statuses[uid] for uid in uids]
                if self._interrupts.asked and not cancels:
                    return [statuses[uid] for uid in uids]
                if self._interrupts.asked and not cancelled:
                    self._cancel(statuses)
                    cancelled = True
            except FabricGoneError:
                self._find_again()
            self._interrupts.wait(POLL_S)

    def _look(self, uids: Sequence[str], statuses: dict[str, RunStatus]) -> None:
        http = self._http()
        for uid in uids:
            known = statuses.get(uid)
            if known is None or known.phase not in ENDED_PHASES:
                statuses[uid] = http.get(f"/v1/runs/{uid}", RunStatus)
        fabric = http.where_allowed("/v1/fabric", FabricStatus)
        self._progress.update([statuses[uid] for uid in uids], fabric, time.time())

    def _cancel(self, statuses: dict[str, RunStatus]) -> None:
        self._progress.note("cancelling; Ctrl-C again leaves at once")
        for uid, status in statuses.items():
            if status.phase not in ENDED_PHASES:
                document = {"reason": "cancelled by Ctrl-C"}
                self._http().call("POST", f"/v1/runs/{uid}/cancel", document=document)

    def _find_again(self) -> None:
        self._progress.note("the fabric went away; looking for it")
        end = time.monotonic() + _PATIENCE_S
        while True:
            try:
                self._again()
            except FabricGoneError:
                raise
            except OSError:
                if time.monotonic() > end:
                    raise
            else:
                return
            self._interrupts.wait(POLL_S)
