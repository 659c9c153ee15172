"""Calls from their request to their end: sends them to a replica, and again where that is safe.

A call is sent to a second replica, once, where the first is full or ends before it has answered
anything. So a call is computed at least once and answered at most once.
"""

import asyncio
import secrets
from collections.abc import Collection
from dataclasses import dataclass, field

import msgspec

from flowmesh_core.openai.errors import OpenAiError
from flowmesh_core.protocol.serving import (
    FULL,
    LOST,
    Abort,
    CallEnded,
    CallRefused,
    Credit,
    Piece,
    ServiceCall,
)
from flowmesh_serving.calls.replicas import ReplicaTable, RoutedReplica
from flowmesh_serving.errors import lost_replica, no_replica, path_not_served, replicas_full
from flowmesh_serving.links.hub_link import HubLink

_TRIES = 2
Reply = Piece | CallEnded | CallRefused


@dataclass(slots=True, eq=False)
class PendingCall:
    """A call that has not ended.

    Attributes:
        call: what is asked.
        service: ``namespace/name``.
        replies: frames of its answer that nothing has taken yet.
        replica: where it is; None before, between two replicas, and after its end.
    """

    call: ServiceCall
    service: str
    replies: asyncio.Queue[Reply] = field(default_factory=asyncio.Queue)
    replica: RoutedReplica | None = None

    @property
    def call_id(self) -> str:
        """The call's name."""
        return self.call.call_id


class Calls:
    """All calls of a router to services of one engine."""

    def __init__(self, replicas: ReplicaTable) -> None:
        """Sends calls to these replicas."""
        self.replicas = replicas
        self._pending: dict[str, PendingCall] = {}

    @property
    def in_flight(self) -> int:
        """Calls that have not ended."""
        return len(self._pending)

    async def begin(self, service: str, call: ServiceCall) -> tuple[PendingCall, Piece | CallEnded]:
        """Sends a call to a replica and waits for the first frame of its answer.

        Returns:
            The call, which the caller must :meth:`end`, and the frame.

        Raises:
            OpenAiError: no replica takes the call.
        """
        pending = PendingCall(call, service)
        self._pending[call.call_id] = pending
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
        if pending.replica is not None:
            pending.replica.link.answer(Credit(pending.call_id, size))

    def end(self, pending: PendingCall) -> None:
        """Forgets a call; one that has not ended is aborted. May be called more than once."""
        if self._pending.pop(pending.call_id, None) is None:
            return
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

    # -- for the hubs' frames --------------------------------------------------------------------

    def reply(self, link: HubLink, message: Reply) -> None:
        """Deals with a frame of a call; those of calls that have ended are ignored."""
        pending = self._pending.get(message.call_id)
        if pending is None or pending.replica is None or pending.replica.link is not link:
            return
        if isinstance(message, CallEnded):
            self._detach(pending)
        pending.replies.put_nowait(message)

    def lost(self, link: HubLink) -> None:
        """Ends the calls that a hub has."""
        for pending in list(self._pending.values()):
            if pending.replica is not None and pending.replica.link is link:
                self._detach(pending)
                pending.replies.put_nowait(CallEnded(pending.call_id, LOST))


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
