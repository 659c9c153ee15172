"""Which submissions want a run, so that one of several equal ones can leave without ending it.

In memory: a new leader knows only of submissions that it accepted itself, and where it knows of
none, the first that leaves cancels the run.
"""

from collections.abc import Callable

from flowmesh_control.quotas.doubling import Doubling


class Submitters:
    """The submissions of each unfinished run."""

    def __init__(self, unfinished: Callable[[str], bool]) -> None:
        """Starts without any; ``unfinished`` says whether the run of a uid has not ended."""
        self._unfinished = unfinished
        self._of_run: dict[str, set[str]] = {}
        self._unnamed = 0
        self._doubling = Doubling()

    def add(self, uid: str, submitter: str) -> None:
        """Adds a submission of a run; one without a name never leaves."""
        if self._doubling.is_due(len(self._of_run)):
            self._of_run = {u: who for u, who in self._of_run.items() if self._unfinished(u)}
            self._doubling.left(len(self._of_run))
        if not submitter:
            self._unnamed += 1
            submitter = f"#{self._unnamed}"
        self._of_run.setdefault(uid, set()).add(submitter)

    def leave(self, uid: str, submitter: str) -> bool:
        """Removes a submission; returns whether others still want the run."""
        wanted_by = self._of_run.get(uid, set())
        wanted_by.discard(submitter)
        return bool(wanted_by)
