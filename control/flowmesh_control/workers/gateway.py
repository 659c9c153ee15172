"""The worker gateway: a WebSocket on ``/worker`` that speaks ``flowmesh_core.protocol.messages``.

Workers connect; the control plane never connects to a worker. A worker first sends its full state
and is answered with the attempts that continue; then both sides send changes. The gateway turns the
messages into events and knows nothing of runs. A worker that does not synchronise within the
watchdog is lost, connected or not.

Messages are validated item by item (``message_intake``): an item that is malformed, or of an
attempt that was not assigned to this worker, is dropped. A connection with many of them is closed.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Set
from dataclasses import dataclass
from typing import Protocol

import msgspec
from aiohttp import WSMsgType, web
from msgspec.structs import replace

from flowmesh_control.auth.worker_tokens import WorkerTokenVerifier
from flowmesh_control.loop.clock import Clock
from flowmesh_control.workers.dropped_items import DropCounters
from flowmesh_control.workers.given_attempts import GivenAttempts, TokenIssuer
from flowmesh_control.workers.message_intake import DroppedItems, DropReason
from flowmesh_control.workers.session import WorkerSession, refuse, welcome
from flowmesh_core.errors import FlowMeshError
from flowmesh_core.machine.events import (
    Event,
    ProtocolViolated,
    WorkerConnected,
    WorkerLost,
    WorkerSynced,
    WorkerTrustChanged,
)
from flowmesh_core.protocol.attempt_tokens import AttemptTokens, TokenHolder
from flowmesh_core.protocol.checks import MessageProblem
from flowmesh_core.protocol.messages import (
    PROTOCOL_VERSION,
    Assignment,
    AttemptEnd,
    Hello,
    PrewarmSpec,
    Sync,
    decode_worker,
)
from flowmesh_core.protocol.validation import of_hello
from flowmesh_core.units import DEFAULT_TRUST

HELLO_WITHIN_S = 10.0
MAX_MESSAGE_BYTES = 256 << 20
UNAUTHENTICATED_BYTES = 1 << 20
"""The largest message of a connection whose handshake has no valid token (aiohttp fixes the limit
when it accepts the WebSocket). Enough for a Hello, which is then refused with a reason."""
REASON_CHARS = 500
LAG_S = 2.0
"""If the control plane itself was suspended for this long, no worker counts as silent."""


class Telemetry(Protocol):
    """Receives the logs and metrics in workers' messages."""

    def synced(self, worker: str, sync: Sync) -> None:
        """Receives a worker's message."""
        ...

    def forget(self, worker: str) -> None:
        """Forgets a worker that left or was lost."""
        ...


class WorkerLog(Protocol):
    """Logs what workers ask for."""

    def joined(self, worker: str, pool: str, address: str) -> None:
        """Logs that a worker has joined, from an address."""
        ...

    def refused(self, worker: str, pool: str, address: str, reason: str) -> None:
        """Logs that a worker was refused; name and pool are empty where it did not say them."""
        ...

    def violated(self, worker: str, pool: str, problem: str) -> None:
        """Logs that items of a worker's message were dropped."""
        ...


@dataclass(slots=True)
class _KnownWorker:
    """A worker that has joined and is not lost.

    Attributes:
        proven_pool: the pool that its token is for, ``*`` for any; ``trust`` is that pool's.
        seen_s: when it synchronised last, by the gateway's clock.
        session: None while it is not connected.
    """

    incarnation: str
    pool: str
    proven_pool: str
    trust: int
    seen_s: float
    session: WorkerSession | None


@dataclass(frozen=True, slots=True)
class _Refusal:
    reason: str
    final: bool


PoolTrust = Callable[[str], int]
"""Returns the trust of the pool of a token, given its name, or ``*`` for a token of any pool."""


def default_trust(pool: str) -> int:
    """The trust of any pool where there are no objects of pools, as on a laptop."""
    return DEFAULT_TRUST


class WorkerGateway:
    """Connects the machine with the workers, in one epoch.

    Attributes:
        drops: counts the items dropped from workers' messages.
    """

    def __init__(
        self,
        *,
        epoch: int,
        attempt_tokens: AttemptTokens,
        post: Callable[[Event], None],
        tokens: WorkerTokenVerifier,
        telemetry: Telemetry,
        log: WorkerLog,
        clock: Clock,
        wall_clock: Clock,
        watchdog_s: float,
        sync_interval_s: float,
        knows: Callable[[str], bool],
        later_epoch_seen: Callable[[int], None],
        trust_of: PoolTrust = default_trust,
        refused: Set[str] = frozenset(),
    ) -> None:
        """Starts without workers.

        Args:
            epoch: sent in every message.
            attempt_tokens: issues and verifies the tokens of attempts.
            post: posts an event to the machine.
            tokens: verifies workers' tokens.
            telemetry: receives logs and metrics.
            log: logs which workers join, are refused or break the protocol.
            clock: seconds on any clock that does not jump.
            wall_clock: Unix time in seconds.
            watchdog_s: a worker that was silent for this long is lost.
            sync_interval_s: how often workers must synchronise.
            knows: whether the machine has a worker; one that it gave up must reconnect and send its
                full state.
            later_epoch_seen: called with the epoch that a worker has seen, if later than this one.
            trust_of: returns the trust of the pool that a worker's token is for.
            refused: names of workers whose messages have stopped the control plane too often.
        """
        self._epoch = epoch
        self._issuer = TokenIssuer(attempt_tokens, wall_clock, clock)
        self._post = post
        self._tokens = tokens
        self._telemetry = telemetry
        self._log = log
        self._clock = clock
        self._watchdog_s = watchdog_s
        self._sync_interval_s = sync_interval_s
        self._knows = knows
        self._later_epoch_seen = later_epoch_seen
        self._trust_of = trust_of
        self._refused = refused
        self._known: dict[str, _KnownWorker] = {}
        self._closing: set[asyncio.Future[None]] = set()
        self._checked_at = time.monotonic()
        self.drops = DropCounters()

    async def handle(self, request: web.Request) -> web.WebSocketResponse:
        """Serves one connection (the handler of ``/worker``)."""
        limit_bytes = (
            MAX_MESSAGE_BYTES if await self._has_valid_token(request) else UNAUTHENTICATED_BYTES
        )
        socket = web.WebSocketResponse(max_msg_size=limit_bytes, compress=False)
        await socket.prepare(request)
        address = request.remote or ""
        hello = await self._hello(socket)
        if isinstance(hello, _Refusal):
            self._log.refused("", "", address, hello.reason)
            await refuse(socket, hello.reason, final=hello.final)
            return socket
        name = hello.shape.name[:REASON_CHARS]
        pool = await self._admit(hello)
        if isinstance(pool, _Refusal):
            self._log.refused(name, hello.shape.pool[:REASON_CHARS], address, pool.reason)
            await refuse(socket, pool.reason, final=pool.final)
            return socket
        self._log.joined(name, hello.shape.pool[:REASON_CHARS], address)
        await self._serve(hello, pool, socket)
        return socket

    @property
    def workers(self) -> list[str]:
        """Names of the workers that have joined and are not lost."""
        return sorted(self._known)

    def assign(
        self, worker: str, assignment: Assignment, generation: int, read_scopes: tuple[str, ...]
    ) -> None:
        """As :meth:`WorkerChannel.assign`; a worker without connection gets it when it is back."""
        session = self._session(worker)
        if session is not None:
            session.assign(assignment, generation, read_scopes)

    def cancel(self, worker: str, attempt_id: str) -> None:
        """As :meth:`WorkerChannel.cancel`."""
        session = self._session(worker)
        if session is not None:
            session.cancel(attempt_id)

    def prewarm(self, worker: str, openings: tuple[PrewarmSpec, ...]) -> None:
        """As :meth:`WorkerChannel.prewarm`."""
        session = self._session(worker)
        if session is not None:
            session.prewarm(openings)

    def acknowledge(self, worker: str, attempt_id: str) -> None:
        """As :meth:`WorkerChannel.acknowledge`."""
        session = self._session(worker)
        if session is not None:
            session.acknowledge(attempt_id)

    def confirm_attempts(self, worker: str, attempts: tuple[str, ...]) -> None:
        """As :meth:`WorkerChannel.keep`."""
        session = self._session(worker)
        if session is not None:
            session.confirm_attempts(attempts)

    def report(self, worker: str, end: AttemptEnd) -> None:
        """As :meth:`WorkerChannel.report`."""
        known = self._known.get(worker)
        if known is not None:
            self._post(WorkerSynced(worker, known.incarnation, Sync(seq=0, ended=(end,))))

    def drain(self, worker: str) -> bool:
        """Asks a worker to finish and leave; returns whether it is connected."""
        session = self._session(worker)
        if session is None:
            return False
        session.drain()
        session.flush()
        return True

    def flush(self) -> None:
        """As :meth:`WorkerChannel.flush`."""
        for known in self._known.values():
            if known.session is not None:
                known.session.flush()

    def lost(self, worker: str, reason: str) -> None:
        """Declares a worker lost whose process is known to be dead, before the watchdog does."""
        if self._known.pop(worker, None) is not None:
            self._telemetry.forget(worker)
            self._post(WorkerLost(worker, reason))

    def watch(self) -> None:
        """Declares silent workers lost, and notices changed trust; called about every second."""
        self._check_trust()
        now = time.monotonic()
        lag_s, self._checked_at = now - self._checked_at, now
        if lag_s > LAG_S:
            # The process was suspended (a sleeping laptop, a starved CPU) and could not receive.
            for known in self._known.values():
                known.seen_s = self._clock()
            return
        horizon = self._clock() - self._watchdog_s
        silent = [n for n, k in self._known.items() if k.seen_s < horizon]
        for name in silent:
            known = self._known[name]
            self.lost(name, "no synchronisation within the watchdog")
            if known.session is not None:
                self._close_soon(known.session, "silent for too long")
        for name, known in self._known.items():
            if known.session is not None and known.session.opened and not self._knows(name):
                self._close_soon(known.session, "given up; reconnect and send the full state")

    def _check_trust(self) -> None:
        """Reports the workers whose pool is trusted more, or less, than before."""
        for name, known in self._known.items():
            trust = self._trust_of(known.proven_pool)
            if trust != known.trust:
                known.trust = trust
                self._post(WorkerTrustChanged(name, known.incarnation, trust))

    def _close_soon(self, session: WorkerSession, reason: str) -> None:
        closing = asyncio.ensure_future(session.close(reason))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    async def close(self) -> None:
        """Closes every connection; the workers then connect to the next control plane."""
        sessions = [k.session for k in self._known.values() if k.session is not None]
        await asyncio.gather(*(s.close("the control plane stops") for s in sessions))

    async def watch_always(self) -> None:
        """Calls :meth:`watch` repeatedly until cancelled."""
        self._checked_at = time.monotonic()
        while True:
            await asyncio.sleep(min(1.0, self._watchdog_s / 4))
            self.watch()

    def _session(self, worker: str) -> WorkerSession | None:
        known = self._known.get(worker)
        return None if known is None else known.session

    async def _has_valid_token(self, request: web.Request) -> bool:
        """Whether the handshake has a valid token; checked before a message is read."""
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        try:
            return scheme == "Bearer" and await self._tokens.pool_of(token.strip()) is not None
        except FlowMeshError:
            return False  # it cannot be verified now; the Hello is then refused with that reason

    async def _hello(self, socket: web.WebSocketResponse) -> Hello | _Refusal:
        try:
            message = await asyncio.wait_for(socket.receive(), HELLO_WITHIN_S)
        except TimeoutError:
            return _Refusal(f"no Hello came within {HELLO_WITHIN_S:g} s", final=False)
        if message.type is not WSMsgType.BINARY:
            return _Refusal("the first message must be a Hello in MessagePack", final=True)
        hello = _read(message.data)
        if isinstance(hello, Hello):
            return hello
        if isinstance(hello, str):
            self.drops.counts[DropReason.UNREADABLE] += 1
            return _Refusal(f"the first message cannot be read: {hello}", final=True)
        return _Refusal("the first message must be a Hello", final=False)

    async def _admit(self, hello: Hello) -> str | _Refusal:
        """Returns the pool that the worker's token is for, or why it may not join."""
        if hello.version != PROTOCOL_VERSION:
            return _Refusal(
                f"protocol version {hello.version}; this control plane speaks {PROTOCOL_VERSION}; "
                "use a worker of the same release",
                final=True,
            )
        pool = await self._proven_pool(hello)
        if isinstance(pool, _Refusal):
            return pool
        if hello.epoch > self._epoch:
            self._later_epoch_seen(hello.epoch)
            return _Refusal(
                f"this control plane leads epoch {self._epoch}, the worker has seen {hello.epoch}",
                final=False,
            )
        problem = of_hello(hello)
        if problem is not None:
            name, said = hello.shape.name[:REASON_CHARS], hello.shape.pool[:REASON_CHARS]
            self.drops.whole(name, said, DropReason.MALFORMED, problem)
            return _Refusal(
                f"the worker's Hello is malformed: {problem}; correct the worker's settings, "
                "or use a worker of the same release",
                final=True,
            )
        return self._refusal_of_name(hello) or pool

    def _refusal_of_name(self, hello: Hello) -> _Refusal | None:
        """Refuses a name that another worker has; it has it until it is lost."""
        if hello.shape.name in self._refused:
            return _Refusal(
                "the control plane stopped twice while it worked on this worker's messages; "
                "delete the worker's pod, and report what it sends",
                final=True,
            )
        known = self._known.get(hello.shape.name)
        if known is None:
            return None
        if known.pool != hello.shape.pool:
            return _Refusal(
                f"the name {hello.shape.name!r} belongs to a worker of another pool; "
                "give this one another name",
                final=False,
            )
        if known.session is not None and known.incarnation != hello.incarnation:
            return _Refusal(
                f"a worker named {hello.shape.name!r} is connected; give this one another name",
                final=False,
            )
        return None

    async def _proven_pool(self, hello: Hello) -> str | _Refusal:
        try:
            pool = await self._tokens.pool_of(hello.token)
        except FlowMeshError as e:
            return _Refusal(str(e), final=False)
        if pool is None:
            return _Refusal("the token is not valid for any pool", final=True)
        if pool not in ("*", hello.shape.pool):
            return _Refusal(
                f"the token is for pool {pool!r}, not for pool {hello.shape.pool!r}", final=True
            )
        return pool

    async def _serve(self, said: Hello, pool: str, socket: web.WebSocketResponse) -> None:
        trust = self._trust_of(pool)
        hello = replace(said, shape=replace(said.shape, trust=trust))
        name = hello.shape.name
        before = self._session(name)
        holder = TokenHolder(hello.shape.pool, name, hello.incarnation)
        given = GivenAttempts(self._issuer, holder)
        session = WorkerSession(hello, socket, epoch=self._epoch, given=given)
        self._known[name] = _KnownWorker(
            hello.incarnation, hello.shape.pool, pool, trust, self._clock(), session
        )
        if before is not None:
            await before.close("the worker has reconnected")
        await welcome(socket, epoch=self._epoch, sync_interval_s=self._sync_interval_s)
        checked = session.intake.hello(hello)
        self.drops.count(name, hello.shape.pool, checked.dropped)
        session.dismiss(checked.unknown_ends)
        self._post(WorkerConnected(checked.message, checked.generations))
        self._violated(name, hello.shape.pool, checked.dropped)
        sender = asyncio.create_task(session.send())
        try:
            await self._receive(session, socket)
        finally:
            sender.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await sender
            known = self._known.get(name)
            if known is not None and known.session is session:
                known.session = None

    def _violated(self, worker: str, pool: str, dropped: DroppedItems) -> None:
        """Reports a message with dropped items to the machine: one violation, however many."""
        if dropped:
            problem = str(dropped.first[0].problem)
            self._log.violated(worker, pool, problem)
            self._post(ProtocolViolated(worker, problem))

    async def _receive(self, session: WorkerSession, socket: web.WebSocketResponse) -> None:
        async for message in socket:
            known = self._known.get(session.name)
            if known is None or known.session is not session:
                await session.close("this connection is no longer the worker's")
                return
            received = _read(message.data) if message.type is WSMsgType.BINARY else "not binary"
            if not isinstance(received, Sync) or not session.accepts(received.seq):
                text = received if isinstance(received, str) else "it is not the expected Sync"
                problem = MessageProblem("message", text)
                self.drops.whole(session.name, known.pool, DropReason.UNREADABLE, problem)
                await session.close("a message is missing or unreadable; send the full state")
                return
            known.seen_s = self._clock()
            checked = session.intake.sync(received)
            sync = checked.message
            self._telemetry.synced(session.name, sync)
            event = WorkerSynced(session.name, session.incarnation, sync, checked.generations)
            self._post(event)
            self.drops.count(session.name, known.pool, checked.dropped)
            self._violated(session.name, known.pool, checked.dropped)
            if session.drops(self._clock(), len(checked.dropped)):
                await session.close("too many items are malformed or of other workers' attempts")
                return
            session.dismiss(checked.unknown_ends)
            if sync.goodbye:
                del self._known[session.name]
                self._telemetry.forget(session.name)
                await session.close("goodbye")
                return


def _read(data: bytes) -> Hello | Sync | str:
    """Decodes a message, or returns why it cannot be decoded."""
    try:
        return decode_worker(data)
    except msgspec.DecodeError as e:
        return str(e)[:REASON_CHARS]
