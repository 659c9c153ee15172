"""Buffers in memory the last log lines of the latest attempts; ``run_logs`` stores them."""

from collections import OrderedDict, deque
from collections.abc import Iterable

from flowmesh_core.protocol.messages import LogLine, Sync

LINES_PER_ATTEMPT = 500
ATTEMPTS = 4000


class LogBuffer:
    """The last lines of each attempt, found by action."""

    def __init__(self, *, attempts: int = ATTEMPTS, lines: int = LINES_PER_ATTEMPT) -> None:
        """Starts empty.

        Args:
            attempts: the most attempts with lines; the oldest are forgotten.
            lines: the most lines of an attempt.
        """
        self._attempts = attempts
        self._lines = lines
        self._buffers: OrderedDict[str, deque[LogLine]] = OrderedDict()
        self._by_action: dict[str, list[str]] = {}

    def add(self, sync: Sync) -> None:
        """Adds the lines of a worker's message.

        An end carries an attempt's last lines, which are used if none of them came before.
        """
        for line in sync.logs:
            self._of(line.attempt_id).append(line)
        for end in sync.ended:
            if end.log and end.attempt_id not in self._buffers:
                buffer = self._of(end.attempt_id)
                lines = end.log.splitlines()
                buffer.extend(LogLine(end.attempt_id, end.ended_s, text) for text in lines)

    def __len__(self) -> int:
        """Returns the number of attempts that have lines."""
        return len(self._buffers)

    def of_actions(self, actions: Iterable[str]) -> list[LogLine]:
        """Returns the lines of all attempts of actions (``scope/action_id``), in order of time."""
        found = [
            line
            for action in actions
            for attempt in self._by_action.get(action, ())
            for line in self._buffers.get(attempt, ())
        ]
        return sorted(found, key=lambda line: line.time_s)

    def _of(self, attempt_id: str) -> "deque[LogLine]":
        buffer = self._buffers.get(attempt_id)
        if buffer is not None:
            return buffer
        buffer = self._buffers[attempt_id] = deque(maxlen=self._lines)
        self._by_action.setdefault(_action_of(attempt_id), []).append(attempt_id)
        while len(self._buffers) > self._attempts:
            self._forget(*self._buffers.popitem(last=False))
        return buffer

    def _forget(self, attempt_id: str, _: "deque[LogLine]") -> None:
        action = _action_of(attempt_id)
        attempts = self._by_action[action]
        attempts.remove(attempt_id)
        if not attempts:
            del self._by_action[action]


def _action_of(attempt_id: str) -> str:
    """Returns the ``scope/action_id`` of an attempt id ``scope/action_id/epoch-number``."""
    return attempt_id.rpartition("/")[0]
