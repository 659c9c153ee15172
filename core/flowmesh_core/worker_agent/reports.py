"""Collects what the worker reports in ``Hello`` and ``Sync``.

Reports are levels, not events: after a lost connection the next message describes the state at that
time. Ends of attempts stay until the control plane acknowledges them.
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
    ServingReplicaState,
    Sync,
)
from flowmesh_core.worker_agent.instructions import SendReport
from flowmesh_core.worker_agent.outbox import Outbox

LOG_LINES_MAX = 1000
"""Above this the oldest unsent lines are dropped; an attempt's last lines come with its end."""
LOG_LINE_CHARS = 8192
FIGURE_MAX = 1e15
PROGRESS_DELAY_S = 0.01
"""Progress alone waits this long for other changes: most short attempts have ended by then."""
CALLS_DELAY_S = 0.5
"""How busy replicas are waits this long for other changes."""
REPEAT_ENDS_EVERY_S = 30.0
SETTLED_MAX = 20_000
"""Number of acknowledged attempts to remember, so that a late assignment does not rerun one."""


def figure(value: float) -> float:
    """Returns an engine's figure within the protocol's limits; 0 if it is NaN or negative."""
    return min(value, FIGURE_MAX) if value >= 0.0 else 0.0


class Reports:
    """Attempts, unacknowledged ends, and what has changed since the last report.

    Attributes:
        progress: where each attempt is, by id; ``ended`` has the ends that are not acknowledged.
        checkpoints: the newest of each attempt in ``progress`` or ``ended``.
        draining: whether the worker takes nothing new.
    """

    def __init__(self, out: Outbox) -> None:
        self._out = out
        self.progress: dict[str, AttemptProgress] = {}
        self.ended: dict[str, AttemptEnd] = {}
        self.checkpoints: dict[str, Checkpoint] = {}
        self.draining = False
        self._tokens: dict[str, str] = {}
        self._settled: OrderedDict[str, None] = OrderedDict()
        self._changed: dict[str, AttemptProgress] = {}
        self._new_ends: dict[str, AttemptEnd] = {}
        self._new_checkpoints: dict[str, Checkpoint] = {}
        self._logs: deque[LogLine] = deque(maxlen=LOG_LINES_MAX)
        self._instances_changed = False
        self._components_changed = False
        self._replicas_changed = False
        self._due_s = math.inf
        self._repeat_ends_s = 0.0

    def knows(self, attempt_id: str) -> bool:
        """Returns whether the attempt is here, has ended, or is settled, and must not run again."""
        return (
            attempt_id in self.progress or attempt_id in self.ended or attempt_id in self._settled
        )

    def take(self, attempt_id: str, token: str) -> None:
        """Adds an attempt to the reports.

        Args:
            attempt_id: the attempt's.
            token: the control plane's proof that this worker was given it.
        """
        if token:
            self._tokens[attempt_id] = token
        self.progress[attempt_id] = AttemptProgress(attempt_id, "fetching")

    def full_progress(self) -> tuple[AttemptProgress, ...]:
        """Returns where each attempt is, with its token, for a ``Hello``."""
        tokens = self._tokens
        return tuple(
            msgspec.structs.replace(p, token=tokens.get(p.attempt_id, ""))
            for p in self.progress.values()
        )

    def report(self, progress: AttemptProgress) -> None:
        """Reports where an attempt is now."""
        if progress.attempt_id in self.progress:
            self.progress[progress.attempt_id] = progress
            self._changed[progress.attempt_id] = progress
            self._send_by(self._out.now_s + PROGRESS_DELAY_S)

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        """Reports an attempt's newest stored checkpoint, or that the given one is unusable."""
        attempt_id = checkpoint.attempt_id
        if attempt_id in self.progress or attempt_id in self.ended:
            checkpoint = msgspec.structs.replace(
                checkpoint,
                done=figure(checkpoint.done),
                token=self._tokens.get(attempt_id, ""),
            )
            self.checkpoints[attempt_id] = checkpoint
            self._new_checkpoints[attempt_id] = checkpoint
            self._send_now()

    def end(self, end: AttemptEnd) -> None:
        """Reports the end of an attempt until it is acknowledged."""
        self.progress.pop(end.attempt_id, None)
        self._changed.pop(end.attempt_id, None)
        self.ended[end.attempt_id] = end
        self._new_ends[end.attempt_id] = end
        self._send_now()

    def acknowledge(self, attempt_id: str) -> None:
        """Drops an end that the control plane has dealt with; does nothing for an unknown one."""
        if self.ended.pop(attempt_id, None) is not None:
            self._new_ends.pop(attempt_id, None)
            self.checkpoints.pop(attempt_id, None)
            self._new_checkpoints.pop(attempt_id, None)
            self._tokens.pop(attempt_id, None)
            self._settled[attempt_id] = None
            if len(self._settled) > SETTLED_MAX:
                self._settled.popitem(last=False)

    def log(self, attempt_id: str, text: str) -> None:
        """Reports a line that a host printed during an attempt."""
        self._logs.append(LogLine(attempt_id, self._out.wall_s, text[:LOG_LINE_CHARS]))
        self._send_now()

    def instances_changed(self) -> None:
        """Includes all engine instances in the next report."""
        self._instances_changed = True
        self._send_now()

    def components_changed(self) -> None:
        """Includes all components in the next report: their tiers or their set have changed."""
        self._components_changed = True
        self._send_now()

    def replicas_changed(self) -> None:
        """Includes all replicas of services in the next report."""
        self._replicas_changed = True
        self._send_now()

    def calls_changed(self) -> None:
        """The same for what calls in replicas do, which need not be reported at once."""
        self._replicas_changed = True
        self._send_by(self._out.now_s + CALLS_DELAY_S)

    def drain(self) -> None:
        """Reports that the worker drains."""
        self.draining = True
        self._send_now()

    def all_reported(self, now_s: float) -> None:
        """Records that a ``Hello`` carried everything: later reports have changes after it."""
        self._repeat_ends_s = now_s + REPEAT_ENDS_EVERY_S
        self._all_sent()

    def next_sync(
        self,
        seq: int,
        now_s: float,
        instances: Callable[[], tuple[EngineInstanceState, ...]],
        components: Callable[[], tuple[Component, ...]],
        replicas: Callable[[], tuple[ServingReplicaState, ...]],
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
            replicas=replicas() if self._replicas_changed else None,
        )
        self._logs.clear()
        self._all_sent()
        return sync

    def _all_sent(self) -> None:
        """Marks everything as reported except log lines, which a ``Hello`` does not carry."""
        self._changed.clear()
        self._new_ends.clear()
        self._new_checkpoints.clear()
        self._instances_changed = self._components_changed = self._replicas_changed = False
        self._due_s = math.inf

    def _send_now(self) -> None:
        self._send_by(self._out.now_s)

    def _send_by(self, at_s: float) -> None:
        if at_s < self._due_s:
            self._due_s = at_s
            self._out.add(SendReport(at_s))
