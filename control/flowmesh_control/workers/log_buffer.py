"""What attempts print, kept in memory for a while: the last lines of the latest attempts."""

from collections import OrderedDict, deque
from collections.abc import Iterable

from flowmesh_core.protocol.messages import LogLine, Sync

LINES_PER_ATTEMPT = 500
ATTEMPTS = 4000


class LogBuffer:
    """The last lines of each attempt, and which attempts an action had."""

    def __init__(self, *, attempts: int = ATTEMPTS, lines: int = LINES_PER_ATTEMPT) -> None:
        """Takes the bounds on what is kept."""
        self._attempts = attempts
        self._lines = lines
        self._kept: OrderedDict[str, deque[LogLine]] = OrderedDict()
        self._by_action: dict[str, list[str]] = {}

    def add(self, sync: Sync) -> None:
        """Takes what a worker's message says; ends carry the last lines of quiet attempts."""
        for line in sync.logs:
            self._of(line.attempt_id).append(line)
        for end in sync.ended:
            if end.log and end.attempt_id not in self._kept:
                kept = self._of(end.attempt_id)
                lines = end.log.splitlines()
                kept.extend(LogLine(end.attempt_id, end.ended_s, text) for text in lines)

    def of_actions(self, actions: Iterable[str]) -> list[LogLine]:
        """The lines of all attempts of these actions (``scope/action_id``), in order of time."""
        found = [
            line
            for action in actions
            for attempt in self._by_action.get(action, ())
            for line in self._kept.get(attempt, ())
        ]
        return sorted(found, key=lambda line: line.time_s)

    def _of(self, attempt_id: str) -> "deque[LogLine]":
        kept = self._kept.get(attempt_id)
        if kept is not None:
            return kept
        kept = self._kept[attempt_id] = deque(maxlen=self._lines)
        self._by_action.setdefault(_action_of(attempt_id), []).append(attempt_id)
        while len(self._kept) > self._attempts:
            self._forget(*self._kept.popitem(last=False))
        return kept

    def _forget(self, attempt_id: str, _: "deque[LogLine]") -> None:
        action = _action_of(attempt_id)
        attempts = self._by_action[action]
        attempts.remove(attempt_id)
        if not attempts:
            del self._by_action[action]


def _action_of(attempt_id: str) -> str:
    """``scope/action_id`` of ``scope/action_id/epoch-number``."""
    return attempt_id.rpartition("/")[0]
