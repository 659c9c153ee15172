"""Engine instances that answer calls, in virtual time, with the queues that hubs use.

One decodes all its calls side by side, a step at a time, as vLLM does; the other runs batches.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from flowmesh_core.protocol.serving import DEADLINE, FULL, OK
from flowmesh_core.serving.profile import BatchProfile
from flowmesh_core.serving.queue.batching import form_batch
from flowmesh_core.serving.queue.call_queue import CallAdmission, CallQueue
from flowmesh_core.serving.queue.waiting_call import WaitingCall
from flowmesh_sim.kernel.environment import Environment, Timer, cancel

_DONE = 1e-9
_QUEUED_PER_BATCH = 2

Ended = Callable[[str, str], None]
"""Called with a call's id and its outcome."""


class SimEngine(Protocol):
    """An engine instance as a hub sees it."""

    calls_max: int

    @property
    def load(self) -> tuple[int, int]:
        """Calls that run, and calls that wait."""
        ...

    def add(self, call_id: str, units: float, deadline_s: float, tenant: str = "") -> bool:
        """Runs a call of a tenant or lets it wait; False if it may not."""
        ...

    def abort(self, call_id: str) -> None:
        """Drops a call; its end is not reported."""
        ...


@dataclass(slots=True)
class _Call:
    left: float
    timer: Timer


class DecodingEngine:
    """All running calls advance by a unit a step; a step is longer the more there are.

    Attributes:
        calls_max: calls that run at once.
    """

    def __init__(
        self, engine: Environment, calls_max: int, base_s: float, call_s: float, ended: Ended
    ) -> None:
        """Is idle.

        Args:
            engine: virtual time.
            calls_max: calls that run at once.
            base_s: seconds of a step, without calls.
            call_s: what each call adds to them.
            ended: called when a call has ended.
        """
        self.calls_max = calls_max
        self._engine = engine
        self._base_s = base_s
        self._call_s = call_s
        self._ended = ended
        self._queue = CallQueue(calls_max)
        self._calls: dict[str, _Call] = {}
        self._seen_s = engine.now_s
        self._timer: Timer | None = None

    @property
    def load(self) -> tuple[int, int]:
        """See ``SimEngine.load``."""
        return len(self._queue.running), self._queue.queued

    def add(self, call_id: str, units: float, deadline_s: float, tenant: str = "") -> bool:
        """See ``SimEngine.add``; the call of a tenant with more of them may have to leave."""
        self._advance()
        if self._queue.add(call_id, deadline_s, tenant) is CallAdmission.FULL:
            displaced = self._queue.displaced_by(tenant)
            if displaced is None:
                return False
            self._queue.replace(displaced, call_id, deadline_s, tenant)
            cancel(self._calls.pop(displaced).timer)
            self._ended(displaced, FULL)
        timer = self._engine.at(deadline_s, self._expire, call_id)
        self._calls[call_id] = _Call(units, timer)
        self._schedule()
        return True

    def abort(self, call_id: str) -> None:
        """See ``SimEngine.abort``."""
        if call_id in self._calls:
            self._advance()
            self._remove(call_id)
            self._schedule()

    @property
    def _step_s(self) -> float:
        return self._base_s + self._call_s * len(self._queue.running)

    def _advance(self) -> None:
        steps = (self._engine.now_s - self._seen_s) / self._step_s
        self._seen_s = self._engine.now_s
        for call_id in self._queue.running:
            self._calls[call_id].left -= steps

    def _schedule(self) -> None:
        cancel(self._timer)
        running = self._queue.running
        self._timer = None
        if running:
            least = min(self._calls[call_id].left for call_id in running)
            self._timer = self._engine.after(max(0.0, least) * self._step_s, self._step)

    def _step(self) -> None:
        self._advance()
        done = sorted(c for c in self._queue.running if self._calls[c].left <= _DONE)
        for call_id in done:
            self._remove(call_id)
        self._schedule()
        for call_id in done:
            self._ended(call_id, OK)

    def _expire(self, call_id: str) -> None:
        self.abort(call_id)
        self._ended(call_id, DEADLINE)

    def _remove(self, call_id: str) -> None:
        cancel(self._calls.pop(call_id).timer)
        self._queue.remove(call_id)
        while self._queue.take() is not None:
            pass


class BatchingEngine:
    """Runs the largest batch that can be in time whenever it is idle; late calls are dropped.

    Attributes:
        calls_max: the largest batch.
    """

    def __init__(
        self, engine: Environment, calls_max: int, profile: BatchProfile, ended: Ended
    ) -> None:
        """Is idle."""
        self.calls_max = calls_max
        self._engine = engine
        self._profile = profile
        self._ended = ended
        self._waiting: dict[str, WaitingCall] = {}
        self._batch: set[str] = set()
        self._is_busy = False

    @property
    def load(self) -> tuple[int, int]:
        """See ``SimEngine.load``."""
        return len(self._batch), len(self._waiting)

    def add(self, call_id: str, units: float, deadline_s: float, tenant: str = "") -> bool:
        """See ``SimEngine.add``; a call is one visit, whatever its units and its tenant."""
        del units, tenant
        if len(self._waiting) >= _QUEUED_PER_BATCH * self.calls_max:
            return False
        self._waiting[call_id] = WaitingCall(call_id, deadline_s)
        self._engine.after(0.0, self._begin)
        return True

    def abort(self, call_id: str) -> None:
        """See ``SimEngine.abort``; a batch that runs goes on without it."""
        self._waiting.pop(call_id, None)
        self._batch.discard(call_id)

    def _begin(self) -> None:
        if self._is_busy or not self._waiting:
            return
        now_s = self._engine.now_s
        formed = form_batch(list(self._waiting.values()), self._profile, self.calls_max, 0.0, now_s)
        for call in (*formed.calls, *formed.late):
            del self._waiting[call.id]
        self._batch = {call.id for call in formed.calls}
        if formed.calls:
            self._is_busy = True
            self._engine.after(self._profile.at(len(formed.calls)), self._end)
        for call in formed.late:
            self._ended(call.id, DEADLINE)

    def _end(self) -> None:
        done, self._batch, self._is_busy = sorted(self._batch), set(), False
        self._begin()
        for call_id in done:
            self._ended(call_id, OK)
