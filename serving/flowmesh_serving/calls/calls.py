"""Calls from their request to their end: sends them to a replica, and again where that is safe.

A call is sent to a second replica, once, where the first is full or ends before it has answered
anything. So a call is computed at least once and answered at most once. At its deadline it ends
here, if its hub has not ended it before.
"""

import asyncio
import secrets
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
    ReplicaLoad,
    ServiceCall,
)
from flowmesh_serving.calls.replicas import ReplicaTable, RoutedReplica
from flowmesh_serving.calls.reply_queue import Reply, ReplyQueue
from flowmesh_serving.errors import lost_replica, no_replica, path_not_served, replicas_full
from flowmesh_serving.links.hub_link import HubLink

_TRIES = 2
_CREDIT_LEAST = CREDIT_BYTES // 4
"""A stream's credit is returned in parts of this size: most streams end before the first."""


@dataclass(slots=True, eq=False)
class PendingCall:
    """A call that has not ended.

    Attributes:
        call: what is asked.
        service: ``namespace/name``.
        replies: frames of its answer that nothing has taken yet.
        replica: where it is; None before, between two replicas, and after its end.
        unreturned: bytes that its client has read and that its host does not know of.
        timer: ends it at its deadline.
    """

    call: ServiceCall
    service: str
    replies: ReplyQueue = field(default_factory=ReplyQueue)
    replica: RoutedReplica | None = None
    unreturned: int = 0
    timer: asyncio.TimerHandle | None = None

    @property
    def call_id(self) -> str:
        """The call's name."""
        return self.call.call_id


class Calls:
    """All calls of a router; the hubs' links report to it."""

    def __init__(self) -> None:
        self.replicas = ReplicaTable()
        self._pending: dict[str, PendingCall] = {}

    @property
    def in_flight(self) -> int:
        """Calls that have not ended."""
        return len(self._pending)

    async def begin(
        self, service: str, call: ServiceCall, within_s: float
    ) -> tuple[PendingCall, Piece | CallEnded]:
        """Sends a call to a replica and waits for the first frame of its answer.

        Args:
            service: ``namespace/name``.
            call: what is asked.
            within_s: after so many seconds the call ends.

        Returns:
            The call, which the caller must :meth:`end`, and the frame.

        Raises:
            OpenAiError: no replica takes the call.
        """
        pending = PendingCall(call, service)
        self._pending[call.call_id] = pending
        loop = asyncio.get_running_loop()
        late = CallEnded(call.call_id, DEADLINE)
        pending.timer = loop.call_later(within_s, pending.replies.put, late)
        try:
            return pending, await self._first_reply(pending)
        except BaseException:
            self.end(pending)
            raise

    async def _first_reply(self, pending: PendingCall) -> Piece | CallEnded:
        tried: set[str] = set()
        for _ in range(_TRIES):
            tried.add(self._send(pending, tried))
            reply = await pending.replies.get()
            if not _is_retryable(reply):
                assert not isinstance(reply, CallRefused)
                return reply
            self._detach(pending)
            if self._choose(pending, tried) is None:
                break
        raise _refusal(reply, pending.call.model)

    async def next(self, pending: PendingCall) -> Piece | CallEnded:
        """Returns the next frame of a stream."""
        reply = await pending.replies.get()
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

    def _send(self, pending: PendingCall, tried: Collection[str]) -> str:
        """Sends a call to the best replica that it was not sent to; returns its id."""
        call = pending.call
        replica = self._choose(pending, tried)
        if replica is None:
            if served := self.replicas.paths(pending.service):
                raise path_not_served(call.path, call.model, served)
            raise no_replica(call.model)
        replica_id = replica.candidate.replica_id
        pending.replica = replica
        replica.candidate.own += 1
        replica.link.answer(msgspec.structs.replace(call, replica_id=replica_id))
        return replica_id

    def _choose(self, pending: PendingCall, tried: Collection[str]) -> RoutedReplica | None:
        return self.replicas.choose(pending.service, pending.call.path, tried, pending.call_id)

    @staticmethod
    def _detach(pending: PendingCall) -> None:
        if pending.replica is not None:
            pending.replica.candidate.own -= 1
            pending.replica = None

    # -- as a HubListener ------------------------------------------------------------------------

    def loads_changed(self, link: HubLink, loads: tuple[ReplicaLoad, ...]) -> None:
        """See ``HubListener.loads_changed``."""
        self.replicas.update(link, loads)

    def reply(self, link: HubLink, message: Reply) -> None:
        """See ``HubListener.reply``; frames of calls that have ended are ignored."""
        pending = self._pending.get(message.call_id)
        if pending is None or pending.replica is None or pending.replica.link is not link:
            return
        if isinstance(message, CallEnded):
            self._detach(pending)
        pending.replies.put(message)

    def lost(self, link: HubLink) -> None:
        """See ``HubListener.lost``."""
        self.replicas.remove(link)
        for pending in list(self._pending.values()):
            if pending.replica is not None and pending.replica.link is link:
                self._detach(pending)
                pending.replies.put(CallEnded(pending.call_id, LOST))


def new_call_id() -> str:
    """Returns a name that no other call has, of this router or another."""
    return secrets.token_hex(12)


def _is_retryable(reply: Reply) -> bool:
    return isinstance(reply, CallRefused) or (
        isinstance(reply, CallEnded) and reply.outcome == LOST
    )


def _refusal(reply: Reply, model: str) -> OpenAiError:
    if not isinstance(reply, CallRefused):
        return lost_replica()
    return replicas_full() if reply.reason == FULL else no_replica(model)
