"""The sequences of one engine: how many run, and which give way.

An engine host has one for each engine that generates. A request of a service begins where there is
room for its sequences, and takes the room of rows of attempts where there is none: the rows that
began last stop, and begin again from their prompts later. Rows use what requests leave. Without a
limit everything begins at once.
"""

from collections import deque
from typing import NamedTuple


class SequenceChanges(NamedTuple):
    """What happens now.

    Attributes:
        begin: requests and rows that begin.
        stop: rows that stop, and wait again.
    """

    begin: list[str]
    stop: list[str]


class SequenceQueue:
    """The requests and rows of one engine.

    Attributes:
        limit: sequences that run at once; 0 for any number.
    """

    def __init__(self) -> None:
        self.limit = 0
        self._requests: deque[tuple[str, int]] = deque()
        self._rows: dict[str, tuple[int, int]] = {}
        self._running: dict[str, int] = {}
        self._running_rows: dict[str, tuple[int, int]] = {}
        self._added = 0

    @property
    def running(self) -> int:
        """Sequences that run."""
        return sum(self._running.values()) + len(self._running_rows)

    @property
    def running_rows(self) -> int:
        """Rows of attempts that run."""
        return len(self._running_rows)

    def add_request(self, name: str, sequences: int) -> None:
        """Has a request wait for its turn."""
        self._requests.append((name, sequences))

    def add_row(self, name: str, priority: int) -> None:
        """Has a row of an attempt wait for its turn; higher priorities first."""
        self._added += 1
        self._rows[name] = (-priority, self._added)

    def remove(self, name: str) -> None:
        """Forgets a request or row that has ended or is not wanted."""
        self._running.pop(name, None)
        self._running_rows.pop(name, None)
        self._rows.pop(name, None)
        self._requests = deque(one for one in self._requests if one[0] != name)

    def advance(self) -> SequenceChanges:
        """Returns what begins and stops; to be called after each change."""
        changes = SequenceChanges([], [])
        while self._requests and self._free_places(self._requests[0][1], changes.stop):
            name, sequences = self._requests.popleft()
            self._running[name] = sequences
            changes.begin.append(name)
        while self._rows and not self._requests and self._fits(1):
            name = min(self._rows, key=self._rows.__getitem__)
            self._running_rows[name] = self._rows.pop(name)
            changes.begin.append(name)
        return changes

    def _fits(self, sequences: int) -> bool:
        """Whether this number more may run; any number where nothing runs."""
        return not self.limit or not self.running or self.running + sequences <= self.limit

    def _free_places(self, sequences: int, stopped: list[str]) -> bool:
        """Stops as many rows as a request needs; returns whether it may begin."""
        requests = sum(self._running.values())
        if self.limit and requests and requests + sequences > self.limit:
            return False
        while self._running_rows and not self._fits(sequences):
            last = next(reversed(self._running_rows))
            self._rows[last] = self._running_rows.pop(last)
            stopped.append(last)
        return True
