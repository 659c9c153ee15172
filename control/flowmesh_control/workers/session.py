"""One worker's connection: buffers changes of its desired state and sends them in batches.

Messages are numbered within a connection. While one is being sent, further changes are buffered, so
that a slow worker gets few large messages instead of many small ones. Assignments get their attempt
tokens here.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterable

import msgspec
from aiohttp import web

from flowmesh_control.workers.given_attempts import GivenAttempts
from flowmesh_control.workers.message_intake import MessageIntake
from flowmesh_control.workers.worker_links import WorkerLinks
from flowmesh_core.protocol.messages import (
    PROTOCOL_VERSION,
    Assignment,
    Desired,
    Hello,
    PrewarmSpec,
    Refused,
    RouterAddress,
    ServingReplica,
    Welcome,
    encode,
)
from flowmesh_core.units import Digest

BATCH_ASSIGNMENTS = 256
MESSAGE_BYTES = 2 << 20
"""Larger batches are split; one assignment alone may be larger."""
REFUSAL_CHARS = 2000
"""The longest reason; it may quote the worker's message."""
DROPS_MAX = 10
"""A connection is closed after this many dropped items within ``DROPS_WITHIN_S``.

Items of its Hello do not count: the worker may have attempts of a control plane with another key.
"""
DROPS_WITHIN_S = 60.0
FORGET_AT_ONCE = 10_000
"""Digests to forget in a message; more follow in the next ones."""
ACKNOWLEDGED_WITHIN_S = 0.05
"""How long acknowledgements wait to be sent together with other changes."""


class WorkerSession:
    """A connection whose Hello was accepted.

    Attributes:
        intake: validates the worker's messages.
    """

    def __init__(
        self,
        hello: Hello,
        socket: web.WebSocketResponse,
        *,
        epoch: int,
        given: GivenAttempts,
        links: WorkerLinks,
    ) -> None:
        self.name = hello.shape.name
        self.incarnation = hello.incarnation
        self.intake = MessageIntake(given)
        self._given = given
        self._links = links
        self._socket = socket
        self._epoch = epoch
        self._assign: list[Assignment] = []
        self._cancel: list[str] = []
        self._acknowledged: list[str] = []
        self._dismissed: list[str] = []
        self._drops: deque[float] = deque()
        self._keep: tuple[str, ...] | None = None
        self._prewarm: tuple[PrewarmSpec, ...] | None = None
        self._replicas: tuple[ServingReplica, ...] | None = None
        self._routers: tuple[RouterAddress, ...] | None = None
        self._drain = False
        self._forget: tuple[Digest, ...] = ()
        self._opened = False
        self._sent = 0
        self._received = 0
        self._ready = asyncio.Event()
        self._flush_timer: asyncio.TimerHandle | None = None

    def confirm_attempts(self, attempts: tuple[str, ...]) -> None:
        """Answers the full state: the first message names the attempts that continue.

        Nothing is sent before.
        """
        self._assign, self._cancel, self._acknowledged = [], [], []
        self._keep = attempts
        self._opened = True

    def assign(self, assignment: Assignment, generation: int, read_scopes: tuple[str, ...]) -> None:
        """Buffers an assignment; dropped before the full state was answered."""
        if self._opened:
            token = self._given.give(assignment.attempt_id, generation, read_scopes)
            self._assign.append(msgspec.structs.replace(assignment, token=token))

    def cancel(self, attempt_id: str) -> None:
        """Buffers the cancellation of an attempt; an unsent assignment of it is sent first."""
        if self._opened:
            self._cancel.append(attempt_id)

    def prewarm(self, specs: tuple[PrewarmSpec, ...]) -> None:
        """Sets all engines to prewarm; sent once the full state was answered."""
        self._prewarm = tuple(self._with_token(spec) for spec in specs)

    def serve(
        self, replicas: tuple[ServingReplica, ...], routers: tuple[RouterAddress, ...]
    ) -> None:
        """Sets all replicas of services and routers; sent once the full state was answered."""
        self._replicas = tuple(map(self._given.give_replica, replicas))
        self._routers = self._links.certified(routers, replicas)

    def renew_links(self) -> None:
        """Sends new link certificates where the last ones are at half of their time."""
        renewed = self._links.renewed()
        if renewed is not None:
            self._routers = renewed
            self.flush()

    def _with_token(self, spec: PrewarmSpec) -> PrewarmSpec:
        return msgspec.structs.replace(spec, token=self._given.reading_token(spec.read_scopes))

    def acknowledge(self, attempt_id: str) -> None:
        """Buffers the acknowledgement of an attempt's end."""
        if self._opened:
            self._given.forget(attempt_id)
            self._acknowledged.append(attempt_id)

    def dismiss(self, attempt_ids: Iterable[str]) -> None:
        """Buffers acknowledgements of ends that were dropped as unknown."""
        self._dismissed += attempt_ids
        if self._dismissed:
            self.flush()

    def drops(self, now_s: float, count: int) -> bool:
        """Counts dropped items; returns whether there were too many within ``DROPS_WITHIN_S``."""
        if not count:
            return False
        self._drops.extend([now_s] * min(count, DROPS_MAX))
        while self._drops[0] < now_s - DROPS_WITHIN_S:
            self._drops.popleft()
        return len(self._drops) >= DROPS_MAX

    def drain(self) -> None:
        """Buffers the request to accept nothing new, finish, and leave."""
        self._drain = True

    def forget(self, digests: Iterable[Digest]) -> None:
        """Buffers the request to delete blobs and components; sent once the state was answered."""
        self._forget = (*self._forget, *digests)
        self.flush()

    @property
    def opened(self) -> bool:
        """Whether the worker's full state was answered."""
        return self._opened

    def flush(self) -> None:
        """Sends the buffered changes; acknowledgements alone wait for a moment."""
        if not self._opened:
            return
        if self._urgent:
            self._ready.set()
        elif (self._acknowledged or self._dismissed) and self._flush_timer is None:
            loop = asyncio.get_running_loop()
            self._flush_timer = loop.call_later(ACKNOWLEDGED_WITHIN_S, self._ready.set)

    @property
    def _urgent(self) -> bool:
        return bool(
            self._assign
            or self._cancel
            or self._drain
            or self._forget
            or self._keep is not None
            or self._prewarm is not None
            or self._replicas is not None
            or self._routers is not None
        )

    @property
    def _has_changes(self) -> bool:
        return bool(self._urgent or self._acknowledged or self._dismissed)

    def accepts(self, seq: int) -> bool:
        """Whether this is the number of the worker's next message."""
        self._received += 1
        return seq == self._received

    async def send(self) -> None:
        """Sends buffered changes until the socket closes or the task is cancelled."""
        with contextlib.suppress(ConnectionResetError):
            while not self._socket.closed:
                await self._ready.wait()
                self._ready.clear()
                while self._has_changes and not self._socket.closed:
                    for data in self._batch():
                        await self._socket.send_bytes(data)

    async def close(self, reason: str) -> None:
        """Closes the socket; the worker reconnects and sends its full state."""
        with contextlib.suppress(ConnectionResetError, asyncio.TimeoutError):
            await self._socket.close(code=4000, message=reason.encode()[:120])

    def _batch(self) -> list[bytes]:
        if self._flush_timer is not None:
            self._flush_timer.cancel()
            self._flush_timer = None
        assign = self._assign[:BATCH_ASSIGNMENTS]
        del self._assign[:BATCH_ASSIGNMENTS]
        # A cancel must not overtake its assignment, which may wait for the next batch.
        cancel: list[str] = []
        if not self._assign:
            cancel, self._cancel = self._cancel, []
        message = Desired(
            epoch=self._epoch,
            seq=0,
            assign=tuple(assign),
            cancel=tuple(cancel),
            acknowledged=(*self._acknowledged, *self._dismissed),
            full_state=self._keep is not None,
            keep=self._keep or (),
            drain=self._drain,
            prewarm=self._prewarm,
            forget=self._forget[:FORGET_AT_ONCE],
            replicas=self._replicas,
            routers=self._routers,
        )
        self._forget = self._forget[FORGET_AT_ONCE:]
        self._acknowledged, self._dismissed = [], []
        self._keep, self._drain = None, False
        self._prewarm = self._replicas = self._routers = None
        return self._encoded(message)

    def _encoded(self, message: Desired) -> list[bytes]:
        data = self._numbered(message)
        if len(data) <= MESSAGE_BYTES or len(message.assign) <= 1:
            return [data]
        self._sent -= 1
        half = len(message.assign) // 2
        first = msgspec.structs.replace(message, assign=message.assign[:half], cancel=())
        rest = Desired(
            epoch=self._epoch, seq=0, assign=message.assign[half:], cancel=message.cancel
        )
        return [*self._encoded(first), *self._encoded(rest)]

    def _numbered(self, message: Desired) -> bytes:
        self._sent += 1
        return encode(msgspec.structs.replace(message, seq=self._sent))


async def welcome(socket: web.WebSocketResponse, *, epoch: int, sync_interval_s: float) -> None:
    """Accepts a worker's Hello."""
    await socket.send_bytes(encode(Welcome(PROTOCOL_VERSION, epoch, sync_interval_s)))


async def refuse(socket: web.WebSocketResponse, reason: str, *, final: bool) -> None:
    """Refuses a worker, and closes the socket.

    Args:
        socket: of the connection.
        reason: for the worker's log.
        final: whether the worker should give up instead of trying again.
    """
    with contextlib.suppress(ConnectionResetError):
        await socket.send_bytes(encode(Refused(reason[:REFUSAL_CHARS], final)))
        await socket.close(code=4001, message=reason.encode()[:120])
