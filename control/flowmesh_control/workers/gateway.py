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
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence, Set

from aiohttp import WSMsgType, web
from msgspec.structs import replace

from flowmesh_control.auth.link_signer import LinkSigner
from flowmesh_control.auth.unverified_connections import mark_verified
from flowmesh_control.auth.worker_tokens import WorkerIdentity, WorkerTokenVerifier
from flowmesh_control.loop.clock import Clock
from flowmesh_control.workers.dropped_items import DropCounters
from flowmesh_control.workers.given_attempts import GivenAttempts, TokenIssuer
from flowmesh_control.workers.join_checks import REASON_CHARS, JoinChecks, Refusal
from flowmesh_control.workers.known_worker import KnownWorker
from flowmesh_control.workers.message_intake import DroppedItems, DropReason
from flowmesh_control.workers.message_reading import Unreadable, read_message
from flowmesh_control.workers.ports import Telemetry, WorkerLog
from flowmesh_control.workers.receive_rate import ReceiveRate, items_of
from flowmesh_control.workers.session import WorkerSession, refuse, welcome
from flowmesh_control.workers.worker_links import WorkerLinks
from flowmesh_core.fleet.pool_declaration import PoolDeclaration
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
from flowmesh_core.protocol.frames import MESSAGE_BYTES_MAX
from flowmesh_core.protocol.messages import (
    REFUSAL_HEADER,
    Assignment,
    AttemptEnd,
    Hello,
    PrewarmSpec,
    RouterAddress,
    ServingReplica,
    Sync,
    WorkerMessage,
)
from flowmesh_core.protocol.validation import of_hello
from flowmesh_core.units import DEFAULT_TRUST, Digest

log = logging.getLogger("flowmesh.gateway")

HELLO_WITHIN_S = 10.0
_FORBIDDEN = 403
LAG_S = 2.0
"""If the control plane itself was suspended for this long, no worker counts as silent."""


PoolTrust = Callable[[str], int]
"""Returns the trust of the pool of a token, given its name, or ``*`` for a token of any pool."""


def default_trust(pool: str) -> int:
    """The trust of any pool where there are no objects of pools, as on a laptop."""
    return DEFAULT_TRUST


class WorkerGateway:
    """Connects the machine with the workers, in one epoch.

    Attributes:
        drops: counts the items dropped from workers' messages.
        paused: how often reading a worker paused because it sent too much, by pool.
    """

    def __init__(
        self,
        *,
        epoch: int,
        attempt_tokens: AttemptTokens,
        link_signer: LinkSigner,
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
        declared: Callable[[str], PoolDeclaration | None] = lambda _: None,
        forgotten: Callable[[], Sequence[Digest]] = tuple,
    ) -> None:
        """Starts without workers.

        Args:
            epoch: sent in every message.
            attempt_tokens: issues and verifies the tokens of attempts.
            link_signer: signs the link certificates of workers' hubs.
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
            declared: returns what a pool's object says of its workers; None where there is none.
            forgotten: returns what a worker that joins must not have on its disk.
        """
        self._epoch = epoch
        self._issuer = TokenIssuer(attempt_tokens, wall_clock, clock)
        self._link_signer = link_signer
        self._post = post
        self._joins = JoinChecks(epoch, tokens, later_epoch_seen, refused)
        self._declared = declared
        self._forgotten = forgotten
        self._telemetry = telemetry
        self._log = log
        self._clock = clock
        self._watchdog_s = watchdog_s
        self._sync_interval_s = sync_interval_s
        self._knows = knows
        self._wall_clock = wall_clock
        self._trust_of = trust_of
        self._known: dict[str, KnownWorker] = {}
        self._closing: set[asyncio.Future[None]] = set()
        self._checked_at = time.monotonic()
        self.drops = DropCounters()
        self.paused = Counter[str]()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Serves one connection (the handler of ``/worker``)."""
        address = request.remote or ""
        identity = await self._joins.identity(request)
        if isinstance(identity, web.Response):
            reason = identity.headers.get(REFUSAL_HEADER, "")
            self._log.refused("", "", address, reason, identity.status)
            return identity
        mark_verified(request)
        socket = web.WebSocketResponse(max_msg_size=MESSAGE_BYTES_MAX, compress=False)
        await socket.prepare(request)
        found = await self._hello(socket)
        if isinstance(found, Refusal):
            self._log.refused("", identity.pool, address, found.reason, _FORBIDDEN)
            await refuse(socket, found.reason, final=found.final)
            return socket
        hello, size_bytes = found
        refusal = self._refusal(hello, identity)
        if refusal is not None:
            name, pool = hello.shape.name[:REASON_CHARS], hello.shape.pool[:REASON_CHARS]
            self._log.refused(name, pool, address, refusal.reason, _FORBIDDEN)
            await refuse(socket, refusal.reason, final=refusal.final)
            return socket
        bound = self._bound(hello, identity)
        self._log.joined(bound.shape.name, bound.shape.pool, address)
        await self._serve(bound, identity.pool, socket, size_bytes)
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

    def serve(
        self,
        worker: str,
        replicas: tuple[ServingReplica, ...],
        routers: tuple[RouterAddress, ...],
    ) -> None:
        """As :meth:`WorkerChannel.serve`."""
        session = self._session(worker)
        if session is not None:
            session.serve(replicas, routers)

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

    def forget(self, digests: Sequence[Digest]) -> tuple[str, ...]:
        """Asks all connected workers to delete blobs and components; returns their names."""
        asked = []
        for name, known in sorted(self._known.items()):
            if known.session is not None:
                asked.append(name)
                known.session.forget(digests)
        return tuple(asked)

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
        """Declares silent workers lost, notices changed trust and renews link certificates.

        Called about every second.
        """
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
            elif known.session is not None:
                known.session.renew_links()

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

    async def _hello(self, socket: web.WebSocketResponse) -> tuple[Hello, int] | Refusal:
        """Returns the first message and its size, or why it is refused."""
        try:
            message = await asyncio.wait_for(socket.receive(), HELLO_WITHIN_S)
        except TimeoutError:
            return Refusal(f"no Hello came within {HELLO_WITHIN_S:g} s", final=False)
        if message.type is not WSMsgType.BINARY:
            return Refusal("the first message must be a Hello in MessagePack", final=True)
        hello = await read_message(message)
        if isinstance(hello, Hello):
            return hello, len(message.data)
        if isinstance(hello, Unreadable):
            self.drops.counts[hello.reason] += 1
            return Refusal(f"the first message cannot be read: {hello.text}", final=True)
        return Refusal("the first message must be a Hello", final=False)

    def _refusal(self, hello: Hello, identity: WorkerIdentity) -> Refusal | None:
        refusal = self._joins.refusal(hello, identity)
        if refusal is not None:
            return refusal
        problem = of_hello(hello)
        if problem is not None:
            self.drops.whole(hello.shape.name, hello.shape.pool, DropReason.MALFORMED, problem)
            return Refusal(
                f"the worker's Hello is malformed: {problem}; correct the worker's settings, "
                "or use a worker of the same release",
                final=True,
            )
        if identity.declared and self._declared(hello.shape.pool) is None:
            return Refusal(
                f"the control plane does not know the pool {hello.shape.pool!r} yet; the worker "
                "tries again by itself, and if it persists, see the pool's condition Accepted",
                final=False,
            )
        known = self._known.get(hello.shape.name)
        return None if known is None else known.refusal(hello)

    def _bound(self, hello: Hello, identity: WorkerIdentity) -> Hello:
        """Returns a Hello with its pool's trust, within what that declares and its pod's age."""
        trust = self._trust_of(identity.pool)
        hello = replace(hello, shape=replace(hello.shape, trust=trust))
        declared = self._declared(hello.shape.pool)
        if declared is None:
            return hello
        shape, now_s = declared.bound(hello.shape), self._wall_clock()
        ignored = hello.shape.engines.keys() - shape.engines.keys()
        if ignored:
            log.warning(
                "worker %r offers engines that its pool %r does not have: %s; name those of "
                "plugins in the pool's spec.engines.plugins",
                shape.name,
                shape.pool,
                ", ".join(sorted(ignored))[:REASON_CHARS],
            )
        pod_age_s = 0.0 if identity.started_s is None else max(0.0, now_s - identity.started_s)
        age_s = min(hello.age_s, pod_age_s)
        return replace(hello, shape=shape, age_s=age_s, started_s=now_s - age_s)

    async def _serve(
        self, hello: Hello, proven_pool: str, socket: web.WebSocketResponse, size_bytes: int
    ) -> None:
        name = hello.shape.name
        before = self._session(name)
        holder = TokenHolder(hello.shape.pool, name, hello.incarnation)
        given = GivenAttempts(self._issuer, holder)
        identity = (name, hello.incarnation, hello.shape.pool)
        links = WorkerLinks(self._link_signer, self._wall_clock, *identity)
        session = WorkerSession(hello, socket, epoch=self._epoch, given=given, links=links)
        rate = self._known[name].rate if name in self._known else ReceiveRate()
        self._known[name] = known = KnownWorker(
            hello.incarnation,
            hello.shape.pool,
            proven_pool,
            hello.shape.trust,
            self._clock(),
            session,
            rate,
        )
        if before is not None:
            await before.close("the worker has reconnected")
        await welcome(socket, epoch=self._epoch, sync_interval_s=self._sync_interval_s)
        checked = session.intake.hello(hello)
        self.drops.count(name, hello.shape.pool, checked.dropped)
        session.dismiss(checked.unknown_ends)
        session.forget(self._forgotten())
        self._post(WorkerConnected(checked.message, checked.generations))
        self._violated(name, hello.shape.pool, checked.dropped)
        sender = asyncio.create_task(session.send())
        try:
            await self._pause(known, size_bytes, items_of(hello))
            await self._receive(session, socket)
        finally:
            sender.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await sender
            if known.session is session:
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
            received = await read_message(message)
            if not isinstance(received, Sync) or not session.accepts(received.seq):
                await self._refuse_message(session, known.pool, received)
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
            await self._pause(known, len(message.data), items_of(received))

    async def _refuse_message(
        self, session: WorkerSession, pool: str, received: WorkerMessage | Unreadable
    ) -> None:
        """Counts a message that is not the expected Sync, and closes the connection."""
        reason, text = DropReason.UNREADABLE, "it is not the expected Sync"
        if isinstance(received, Unreadable):
            reason, text = received.reason, received.text
        problem = MessageProblem("message", text)
        self.drops.whole(session.name, pool, reason, problem)
        if reason is DropReason.TOO_LARGE:
            self._post(ProtocolViolated(session.name, str(problem)))
        await session.close(f"a message was not read: {text}; send the full state")

    async def _pause(self, known: KnownWorker, size_bytes: int, items: int) -> None:
        """Stops reading for as long as the worker has sent too much; it is not silent then."""
        now_s = self._clock()
        pause_s = known.rate.pause_s(now_s, size_bytes, items)
        if pause_s > 0.0:
            self.paused[known.pool] += 1
            known.seen_s = now_s + pause_s
            await asyncio.sleep(pause_s)
