"""Calls from their request to their end: sends them to a replica, and again where that is safe.

A call is sent to a second replica, once, where the first is full or ends before it has answered
anything; where its service has no replica, it waits some seconds for one. So a call is computed at
least once and answered at most once. At its deadline it ends here, if its hub has not ended it
before.
"""

import asyncio
import time
from collections.abc import Collection
from dataclasses import dataclass, field

import msgspec

from flowmesh_core.openai.errors import OpenAiError
from flowmesh_core.protocol.serving import (
    CREDIT_BYTES,
    DEADLINE,
    FULL,
    LOST,
    Abort,
    CallEnded,
    CallRefused,
    Credit,
    Piece,
    ServiceCall,
)
from flowmesh_core.serving.route.call_router import TRIES
from flowmesh_serving.calls.replica_arrivals import ReplicaArrivals
from flowmesh_serving.calls.replicas import ReplicaTable, RoutedReplica
from flowmesh_serving.calls.reply_queue import Reply, ReplyQueue
from flowmesh_serving.errors import lost_replica, no_replica, path_not_served, replicas_full
from flowmesh_serving.links.hub_link import Defect, HubLink
from flowmesh_serving.time_sums import SecondsSum

_MS = 1000
_SUCCESS = 200
_FAILURES = range(400, 600)
_TOKENS_MAX = 1 << 40
_CREDIT_LEAST = CREDIT_BYTES // 4
"""A stream's credit is returned in parts of this size: most streams end before the first."""


@dataclass(slots=True, eq=False)
class PendingCall:
    """A call that has not ended.

    Attributes:
        call: what is asked.
        service: ``namespace/name``.
        key: that its replica is chosen by; empty for none.
        deadline_s: when its budget is spent, by the event loop's clock.
        replies: frames of its answer that nothing has taken yet.
        unread_bytes: of pieces among them.
        has_begun: whether a piece has come.
        replica: where it is; None before, between two replicas, and after its end.
        release: of the replica that had it last, ``replica_id``; empty before the first.
        unreturned: bytes that its client has read and that its host does not know of.
        timer: ends it at its deadline.
    """

    call: ServiceCall
    service: str
    key: str
    deadline_s: float
    replies: ReplyQueue = field(default_factory=ReplyQueue)
    unread_bytes: int = 0
    has_begun: bool = False
    replica: RoutedReplica | None = None
    release: str = ""
    replica_id: str = ""
    unreturned: int = 0
    timer: asyncio.TimerHandle | None = None

    @property
    def call_id(self) -> str:
        """The call's name."""
        return self.call.call_id


class Calls:
    """All calls of a router to services of one engine.

    Attributes:
        route_times: in which their replicas were chosen.
    """

    def __init__(self, replicas: ReplicaTable, replica_wait_s: float) -> None:
        """Sends calls to these replicas.

        Args:
            replicas: as hubs report them.
            replica_wait_s: how long a call waits where its service has no replica.
        """
        self.replicas = replicas
        self.arrivals = ReplicaArrivals(replica_wait_s)
        self.route_times = SecondsSum()
        self._pending: dict[str, PendingCall] = {}

    @property
    def in_flight(self) -> int:
        """Calls that have not ended."""
        return len(self._pending)

    def find(self, call_id: str) -> PendingCall | None:
        """Returns a call that has not ended; None for others."""
        return self._pending.get(call_id)

    def begin(self, service: str, call: ServiceCall, within_s: float, key: str) -> PendingCall:
        """Begins a call, which the caller must :meth:`end`; :meth:`first` sends it.

        Args:
            service: ``namespace/name``.
            call: what is asked.
            within_s: after so many seconds the call ends.
            key: calls with one key go to one replica while it has room; empty for none.
        """
        loop = asyncio.get_running_loop()
        pending = PendingCall(call, service, key, loop.time() + call.budget_ms / _MS)
        self._pending[call.call_id] = pending
        late = CallEnded(call.call_id, DEADLINE)
        pending.timer = loop.call_later(within_s, pending.replies.put, late)
        return pending

    async def first(self, pending: PendingCall) -> Piece | CallEnded:
        """Sends a call to a replica and returns the first frame of its answer.

        Raises:
            OpenAiError: no replica takes the call.
        """
        full: set[str] = set()
        reply: Reply | None = None
        for _ in range(TRIES):
            replica = await self._replica_for(pending, full)
            if replica is None:
                break
            self._send(pending, replica)
            reply = await self._reply_of(pending)
            if not _is_retryable(reply):
                assert not isinstance(reply, CallRefused)
                return reply
            if isinstance(reply, CallRefused):
                full.add(replica.candidate.replica_id)
        raise self._refusal(pending, reply)

    @staticmethod
    async def _reply_of(pending: PendingCall) -> Reply:
        reply = await pending.replies.get()
        if isinstance(reply, Piece):
            pending.unread_bytes -= len(reply.data)
        return reply

    async def next(self, pending: PendingCall) -> Piece | CallEnded:
        """Returns the next frame of a stream."""
        reply = await self._reply_of(pending)
        assert not isinstance(reply, CallRefused)
        return reply

    def add_credit(self, pending: PendingCall, size: int) -> None:
        """Lets a stream go on, as its client has read some bytes."""
        pending.unreturned += size
        if pending.unreturned >= _CREDIT_LEAST and pending.replica is not None:
            pending.replica.link.answer(Credit(pending.call_id, pending.unreturned))
            pending.unreturned = 0

    def end(self, pending: PendingCall) -> None:
        """Forgets a call; one that has not ended is aborted. May be called more than once."""
        if self._pending.pop(pending.call_id, None) is None:
            return
        if pending.timer is not None:
            pending.timer.cancel()
        if pending.replica is not None:
            pending.replica.link.answer(Abort(pending.call_id))
        self._detach(pending)

    @staticmethod
    def _send(pending: PendingCall, replica: RoutedReplica) -> None:
        """Sends a call, with what is left of its budget."""
        pending.replica, pending.release = replica, replica.release
        pending.replica_id = replica.candidate.replica_id
        replica.candidate.own += 1
        left_s = pending.deadline_s - asyncio.get_running_loop().time()
        call = msgspec.structs.replace(
            pending.call,
            replica_id=pending.replica_id,
            budget_ms=max(0, int(left_s * _MS)),
        )
        replica.link.answer(call)

    def _refusal(self, pending: PendingCall, reply: Reply | None) -> OpenAiError:
        """Returns the error of a call that no replica answers, after the last reply of one."""
        call = pending.call
        if isinstance(reply, CallRefused):
            return replicas_full() if reply.reason == FULL else no_replica(call.model)
        if reply is not None:
            return lost_replica()
        if call.adapter and not self.replicas.count_with(pending.service, call.adapter):
            return no_replica(call.model)
        if served := self.replicas.paths(pending.service):
            return path_not_served(call.path, call.model, served)
        return no_replica(call.model)

    async def _replica_for(
        self, pending: PendingCall, full: Collection[str]
    ) -> RoutedReplica | None:
        """Returns the replica for a call; waits a while where its service has none."""
        now_s = asyncio.get_running_loop().time()
        waits_until_s = min(now_s + self.arrivals.within_s, pending.deadline_s)
        while True:
            replica = self._choose(pending, full)
            if replica is not None or full or self.replicas.count(pending.service):
                return replica
            if not await self.arrivals.one_before(waits_until_s):
                return None

    def _choose(self, pending: PendingCall, tried: Collection[str]) -> RoutedReplica | None:
        call, began_s = pending.call, time.perf_counter()
        chosen = self.replicas.choose(
            pending.service, call.path, tried, call.call_id, pending.key, call.adapter
        )
        self.route_times.observe(time.perf_counter() - began_s)
        return chosen

    @staticmethod
    def _detach(pending: PendingCall) -> None:
        if pending.replica is not None:
            pending.replica.candidate.own -= 1
            pending.replica = None

    # -- for the hubs' frames --------------------------------------------------------------------

    def reply(self, link: HubLink, message: Reply) -> Defect:
        """Deals with a frame of a call; those of calls that have ended are ignored."""
        pending = self._pending.get(message.call_id)
        if pending is None or pending.replica is None or pending.replica.link is not link:
            return Defect.NOT_ITS_CALL
        if isinstance(message, Piece):
            # An engine host sends while it has credit: only its last piece may be beyond it.
            if not pending.call.stream or pending.unread_bytes >= CREDIT_BYTES:
                return Defect.BREACH
            pending.has_begun = True
            pending.unread_bytes += len(message.data)
        else:
            if not _is_valid(message, pending):
                return Defect.BREACH
            if isinstance(message, CallEnded) and message.outcome == LOST:
                self.replicas.drop(pending.service, pending.replica)
            self._detach(pending)
        pending.replies.put(message)
        return Defect.NONE

    def lost(self, link: HubLink) -> None:
        """Ends the calls that a hub has."""
        for pending in list(self._pending.values()):
            if pending.replica is not None and pending.replica.link is link:
                self._detach(pending)
                pending.replies.put(CallEnded(pending.call_id, LOST))


def _is_valid(message: CallEnded | CallRefused, pending: PendingCall) -> bool:
    """Returns whether a call may end so."""
    if isinstance(message, CallRefused):
        return not pending.has_begun
    if not all(0 <= n <= _TOKENS_MAX for n in (message.tokens_in, message.tokens_out)):
        return False
    match message.outcome:
        case "ok":
            return message.status == _SUCCESS
        case "failed":
            return message.status in _FAILURES
        case _:
            return message.outcome in (DEADLINE, LOST)


def _is_retryable(reply: Reply) -> bool:
    return isinstance(reply, CallRefused) or (
        isinstance(reply, CallEnded) and reply.outcome == LOST
    )
