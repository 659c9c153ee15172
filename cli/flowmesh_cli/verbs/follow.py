"""Follows runs until they end: shows progress, cancels on Ctrl-C, reconnects after failures."""

import time
from collections.abc import Callable, Sequence
from typing import Protocol

from flowmesh_api.v1.enums import ENDED_PHASES
from flowmesh_api.v1.fabric import FabricStatus
from flowmesh_api.v1.runs import RunStatus
from flowmesh_cli.connection.client import ApiClient, FabricUnavailableError
from flowmesh_cli.interrupts import Interrupts
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.views.plain_progress import LineProgress

POLL_S = 0.2
_RECONNECT_TIMEOUT_S = 30.0


class ProgressView(Protocol):
    """Shows the progress of runs."""

    def update(self, runs: Sequence[RunStatus], fabric: FabricStatus | None, now_s: float) -> None:
        """Shows the current state."""
        ...

    def note(self, text: str) -> None:
        """Shows a message."""
        ...

    def close(self) -> None:
        """Ends the display."""
        ...


class JsonProgress:
    """Writes a line of JSON whenever a run has changed."""

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._last: dict[str, RunStatus] = {}

    def update(self, runs: Sequence[RunStatus], fabric: FabricStatus | None, now_s: float) -> None:
        """Writes the runs that have changed."""
        del fabric, now_s
        for run in runs:
            if self._last.get(run.uid) != run:
                self._last[run.uid] = run
                self._terminal.line(run)

    def note(self, text: str) -> None:
        """Writes a message to standard error."""
        self._terminal.note(text)

    def close(self) -> None:
        """Does nothing."""


def progress_for(terminal: Terminal) -> ProgressView:
    """Returns live progress on a terminal, else plain lines."""
    if terminal.is_live:
        # Imported here: drawing is for terminals alone.
        from flowmesh_cli.views.live_progress import LiveProgress  # noqa: PLC0415

        return LiveProgress(terminal.err)
    return LineProgress(terminal.note)


class RunFollower:
    """Polls runs and shows their progress until they end."""

    def __init__(
        self,
        http: Callable[[], ApiClient],
        again: Callable[[], None],
        progress: ProgressView,
        interrupts: Interrupts,
    ) -> None:
        """Polls nothing yet.

        Args:
            http: returns the fabric's current client.
            again: reconnects to the fabric.
            progress: shows the runs.
            interrupts: records Ctrl-C.
        """
        self._http = http
        self._again = again
        self._progress = progress
        self._interrupts = interrupts

    def follow(self, uids: Sequence[str], *, cancels: bool, submitter: str = "") -> list[RunStatus]:
        """Returns the runs once all have ended, or at Ctrl-C unless it ``cancels`` them.

        Args:
            uids: of the runs.
            cancels: whether Ctrl-C cancels those that only the submitter wants; the others go on,
                and are returned as they are.
            submitter: name of the submission; empty to cancel runs for all of their submissions.

        Raises:
            FabricUnavailableError: the fabric did not answer in time.
        """
        statuses: dict[str, RunStatus] = {}
        cancelled = False
        while True:
            try:
                self._refresh(uids, statuses)
                if all(statuses[uid].phase in ENDED_PHASES for uid in uids):
                    return list(statuses.values())
                if self._interrupts.asked and not cancels:
                    return [statuses[uid] for uid in uids]
                if self._interrupts.asked and not cancelled:
                    uids = self._cancel(uids, statuses, submitter)
                    cancelled = True
            except FabricUnavailableError:
                self._reconnect_until_timeout()
            self._interrupts.wait(POLL_S)

    def _refresh(self, uids: Sequence[str], statuses: dict[str, RunStatus]) -> None:
        http = self._http()
        for uid in uids:
            known = statuses.get(uid)
            if known is None or known.phase not in ENDED_PHASES:
                statuses[uid] = http.get(f"/v1/runs/{uid}", RunStatus)
        fabric = http.where_allowed("/v1/fabric", FabricStatus)
        self._progress.update([statuses[uid] for uid in uids], fabric, time.time())

    def _cancel(
        self, uids: Sequence[str], statuses: dict[str, RunStatus], submitter: str
    ) -> list[str]:
        """Cancels runs; returns those whose end is awaited: not those that others want too."""
        self._progress.note("cancelling; press Ctrl-C again to exit at once")
        document = {"reason": "cancelled by Ctrl-C", "submitter": submitter}
        awaited = list(uids)
        for uid in uids:
            if statuses[uid].phase in ENDED_PHASES:
                continue
            status = self._http().ask(
                "POST", f"/v1/runs/{uid}/cancel", RunStatus, document=document
            )
            goes_on = status.phase not in ENDED_PHASES and not status.message  # no reason to end
            if submitter and goes_on:
                self._progress.note(
                    f"{uid} goes on for others who submitted it; `fmesh cancel {uid}` ends it"
                )
                awaited.remove(uid)
        return awaited

    def _reconnect_until_timeout(self) -> None:
        self._progress.note("the fabric does not answer; reconnecting")
        end = time.monotonic() + _RECONNECT_TIMEOUT_S
        while True:
            try:
                self._again()
            except FabricUnavailableError:
                raise
            except OSError:
                if time.monotonic() > end:
                    raise
            else:
                return
            self._interrupts.wait(POLL_S)
