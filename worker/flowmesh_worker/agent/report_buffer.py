"""What the worker holds and has to say: the state behind Hello and Sync.

Everything here is a level, not an event: whatever the connection does, the next message is made of
what is true then. Ends stay until the control plane acknowledges them.
"""

import asyncio
from collections import OrderedDict, deque

import msgspec

from flowmesh_core.protocol.messages import (
    AttemptEnd,
    AttemptProgress,
    Checkpoint,
    LogLine,
    Sync,
)
from flowmesh_worker.agent.ports import WorkerReport

LOG_LINES_WAITING_MAX = 1000
FIGURE_MAX = 1e15
PROGRESS_WAITS_S = 0.01
"""So long mere progress waits for other news: most short attempts have ended by then."""
SETTLED_KEPT = 20_000


def figure(value: float) -> float:
    """An engine's figure as the protocol has it; 0 where it is no number, or a negative one."""
    return min(value, FIGURE_MAX) if value >= 0.0 else 0.0


class ReportBuffer:
    """Held attempts, ends not yet acknowledged, and which of it the control plane has not heard."""

    def __init__(self) -> None:
        """Starts empty."""
        self.progress: dict[str, AttemptProgress] = {}
        self.ended: dict[str, AttemptEnd] = {}
        self.checkpoints: dict[str, Checkpoint] = {}
        self.draining = False
        self.news = asyncio.Event()
        self._none_ended = asyncio.Event()
        self._none_ended.set()
        self._settled: OrderedDict[str, None] = OrderedDict()
        self._changed: dict[str, AttemptProgress] = {}
        self._new_ends: dict[str, AttemptEnd] = {}
        self._new_checkpoints: dict[str, Checkpoint] = {}
        self._logs: deque[LogLine] = deque(maxlen=LOG_LINES_WAITING_MAX)
        self._lanes_changed = False
        self._components_changed = False
        self._soon: asyncio.TimerHandle | None = None

    def knows(self, attempt_id: str) -> bool:
        """Whether the attempt is held, has ended, or is settled: it is not taken up again."""
        return (
            attempt_id in self.progress or attempt_id in self.ended or attempt_id in self._settled
        )

    def take(self, attempt_id: str) -> None:
        """Holds an attempt from now on."""
        self.progress[attempt_id] = AttemptProgress(attempt_id, "fetching")

    def report(self, progress: AttemptProgress) -> None:
        """Where a held attempt is now."""
        if progress.attempt_id in self.progress:
            self.progress[progress.attempt_id] = progress
            self._changed[progress.attempt_id] = progress
            if self._soon is None and not self.news.is_set():
                loop = asyncio.get_running_loop()
                self._soon = loop.call_later(PROGRESS_WAITS_S, self.news.set)

    def checkpoint(self, checkpoint: Checkpoint) -> None:
        """An attempt's newest checkpoint is stored, or the one that it was given is spoiled."""
        attempt_id = checkpoint.attempt_id
        if attempt_id in self.progress or attempt_id in self.ended:
            said = msgspec.structs.replace(checkpoint, done=figure(checkpoint.done))
            self.checkpoints[attempt_id] = said
            self._new_checkpoints[attempt_id] = said
            self.news.set()

    def end(self, end: AttemptEnd) -> None:
        """A held attempt has ended."""
        self.progress.pop(end.attempt_id, None)
        self._changed.pop(end.attempt_id, None)
        self.ended[end.attempt_id] = end
        self._new_ends[end.attempt_id] = end
        self._none_ended.clear()
        self.news.set()

    def acknowledge(self, attempt_id: str) -> None:
        """The control plane has dealt with an end; harmless for an unknown one."""
        if self.ended.pop(attempt_id, None) is not None:
            self._new_ends.pop(attempt_id, None)
            self.checkpoints.pop(attempt_id, None)
            self._new_checkpoints.pop(attempt_id, None)
            self._settled[attempt_id] = None
            if len(self._settled) > SETTLED_KEPT:
                self._settled.popitem(last=False)
            if not self.ended:
                self._none_ended.set()

    async def nothing_to_acknowledge(self) -> None:
        """Waits until every end has been acknowledged."""
        await self._none_ended.wait()

    def log(self, line: LogLine) -> None:
        """A host printed a line; under pressure the oldest are dropped, the end has the last."""
        self._logs.append(line)
        self.news.set()

    def lanes_changed(self) -> None:
        """Some lane's state changed."""
        self._lanes_changed = True
        self.news.set()

    def components_changed(self) -> None:
        """Some component's tier changed."""
        self._components_changed = True
        self.news.set()

    def drain(self) -> None:
        """Nothing new is taken any more."""
        self.draining = True
        self.news.set()

    def said_everything(self) -> None:
        """A Hello told all of it; what comes next are changes after it."""
        self._changed.clear()
        self._new_ends.clear()
        self._new_checkpoints.clear()
        self._lanes_changed = self._components_changed = False
        self._heard()

    def say_ends_again(self) -> None:
        """Ends that are still not acknowledged go out once more."""
        self._new_ends.update(self.ended)

    def next_sync(self, seq: int, state: WorkerReport) -> Sync:
        """All news as one message; they count as said."""
        sync = Sync(
            seq=seq,
            progress=tuple(self._changed.values()),
            ended=tuple(self._new_ends.values()),
            lanes=state.lanes() if self._lanes_changed else None,
            components=state.components() if self._components_changed else None,
            logs=tuple(self._logs),
            draining=self.draining,
            checkpoints=tuple(self._new_checkpoints.values()),
        )
        self._changed.clear()
        self._new_ends.clear()
        self._new_checkpoints.clear()
        self._logs.clear()
        self._lanes_changed = self._components_changed = False
        self._heard()
        return sync

    def _heard(self) -> None:
        """There is nothing new any more."""
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        self.news.clear()
