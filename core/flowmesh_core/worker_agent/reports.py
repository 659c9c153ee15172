"""What the worker reports: the state behind ``Hello`` and ``Sync``.

Everything here is a level, not an event: whatever the connection does, the next message is made of
what is true then. Ends stay until the control plane acknowledges them.
"""

import math
from collections import OrderedDict, deque
from collections.abc import Callable

import msgspec

from flowmesh_core.protocol.messages import (
    AttemptEnd,
    AttemptProgress,
    Checkpoint,
    Component,
    EngineInstanceState,
    LogLine,
    Sync,
)
from flowmesh_core.worker_agent.instructions import SendReport
from flowmesh_core.worker_agent.outbox import Outbox

LOG_LINES_MAX = 1000
"""Under pressure the oldest lines are dropped; an attempt's last lines come with its end."""
FIGURE_MAX = 1e15
PROGRESS_DELAY_S = 0.01
"""Mere progress waits this long for other changes: most short attempts have ended by then."""
REPEAT_ENDS_EVERY_S = 30.0
SETTLED_MAX = 20_000
"""So many acknowledged attempts are remembered, so that a late assignment does not rerun one."""


def figure(value: float) -> float:
    """An engine's figure as the protocol has it; 0 where it is not a number, or negative."""
    return min(value, FIGURE_MAX) if value >= 0.0 else 0.0


class Reports:
    """Attempts, ends not yet acknowledged, and what of it the control plane has not heard.

    Attributes:
        progress: where each attempt is, by id; ``ended`` the ends not yet acknowledged.
        checkpoints: the newest of each of those.
        draining: whether the worker takes nothing new.
    """

    def __init__(self, out: Outbox) -> None:
        self._out = out
        self.progress: dict[str, AttemptProgress] = {}
        self.ended: dict[str, AttemptEnd] = {}
        self.checkpoints: dict[str, Checkpoint] = {}
        self.draining = False
        self._settled: OrderedDict[str, None] = OrderedDict()
        self._changed: dict[str, AttemptProgress] = {}
        self._new_ends: dict[str, AttemptEnd] = {}
        self._new_checkpoints: dict[str, Checkpoint] = {}
        self._logs: deque[LogLine] = deque(maxlen=LOG_LINES_MAX)
        self._instances_changed = False
        self._components_changed = False
        self._due_s = math.inf
        self._repeat_ends_s = 0.0

    def knows(self, attempt_id: str) -> bool:
        """Whether the attempt is here, has ended, or is settled: it is not taken up again."""
        return (
            attempt_id in self.progress or attempt_id in self.ended or attempt_id in self._settled
        )

    def take(self, attempt_id: str) -> None:
        """Reports an attempt from now on."""
        self.progress[attempt_id] = AttemptProgress(attempt_id, "fetching")

    def report(self, progress: AttemptProgress) -> None:
        """Where an attempt is now."""
        if progress.attempt_id in self.progress:
            self.progress[progress.attempt_id] = progress
            self._changed[progress.attempt_id] = progress
            self._send_by(self._out.now_s + PROGRESS_DELAY_S)

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        """An attempt's newest checkpoint is stored, or the one that it was given is unusable."""
        attempt_id = checkpoint.attempt_id
        if attempt_id in self.progress or attempt_id in self.ended:
            checkpoint = msgspec.structs.replace(checkpoint, done=figure(checkpoint.done))
            self.checkpoints[attempt_id] = checkpoint
            self._new_checkpoints[attempt_id] = checkpoint
            self._send_now()

    def end(self, end: AttemptEnd) -> None:
        """An attempt has ended."""
        self.progress.pop(end.attempt_id, None)
        self._changed.pop(end.attempt_id, None)
        self.ended[end.attempt_id] = end
        self._new_ends[end.attempt_id] = end
        self._send_now()

    def acknowledge(self, attempt_id: str) -> None:
        """The control plane has recorded an end; harmless for an unknown one."""
        if self.ended.pop(attempt_id, None) is not None:
            self._new_ends.pop(attempt_id, None)
            self.checkpoints.pop(attempt_id, None)
            self._new_checkpoints.pop(attempt_id, None)
            self._settled[attempt_id] = None
            if len(self._settled) > SETTLED_MAX:
                self._settled.popitem(last=False)

    def log(self, attempt_id: str, text: str) -> None:
        """A host printed a line during an attempt."""
        self._logs.append(LogLine(attempt_id, self._out.wall_s, text))
        self._send_now()

    def instances_changed(self) -> None:
        """The state of some engine instance has changed."""
        self._instances_changed = True
        self._send_now()

    def components_changed(self) -> None:
        """Some component is in another tier, has come, or is gone."""
        self._components_changed = True
        self._send_now()

    def drain(self) -> None:
        """The worker takes nothing new any more."""
        self.draining = True
        self._send_now()

    def all_reported(self, now_s: float) -> None:
        """A ``Hello`` carried everything; what comes next are changes after it."""
        self._repeat_ends_s = now_s + REPEAT_ENDS_EVERY_S
        self._all_sent()

    def next_sync(
        self,
        seq: int,
        now_s: float,
        instances: Callable[[], tuple[EngineInstanceState, ...]],
        components: Callable[[], tuple[Component, ...]],
    ) -> Sync:
        """Returns all changes as one message; they count as reported."""
        if now_s >= self._repeat_ends_s:
            self._repeat_ends_s = now_s + REPEAT_ENDS_EVERY_S
            self._new_ends.update(self.ended)
        sync = Sync(
            seq=seq,
            progress=tuple(self._changed.values()),
            ended=tuple(self._new_ends.values()),
            instances=instances() if self._instances_changed else None,
            components=components() if self._components_changed else None,
            logs=tuple(self._logs),
            draining=self.draining,
            checkpoints=tuple(self._new_checkpoints.values()),
        )
        self._logs.clear()
        self._all_sent()
        return sync

    def _all_sent(self) -> None:
        """Nothing is new any more but lines that a ``Hello`` has no room for."""
        self._changed.clear()
        self._new_ends.clear()
        self._new_checkpoints.clear()
        self._instances_changed = self._components_changed = False
        self._due_s = math.inf

    def _send_now(self) -> None:
        self._send_by(self._out.now_s)

    def _send_by(self, at_s: float) -> None:
        if at_s < self._due_s:
            self._due_s = at_s
            self._out.add(SendReport(at_s))
