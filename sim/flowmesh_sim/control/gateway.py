"""The simulated worker gateway: sessions, the watchdog, and the messages to each worker.

The rules are those of the control plane's gateway: assignments before the answer to a full state
are dropped, a silent worker is lost, and a lost worker reports its full state again.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from flowmesh_control.workers.given_attempts import GivenAttempts, TokenIssuer
from flowmesh_control.workers.message_intake import MessageIntake
from flowmesh_core.machine.events import Event, WorkerConnected, WorkerLost, WorkerSynced
from flowmesh_core.protocol.attempt_tokens import CONTEXT, AttemptTokens, TokenHolder
from flowmesh_core.protocol.messages import (
    Assignment,
    Desired,
    Hello,
    PrewarmSpec,
    RouterAddress,
    ServingReplica,
    Sync,
)
from flowmesh_core.sharing.key_ring import KeyRing
from flowmesh_sim.kernel.environment import Environment
from flowmesh_sim.kernel.network import SimulatedLinkConnection
from flowmesh_sim.workers.connection import SimConnection

_TOKENS = AttemptTokens(KeyRing.of(b"simulated master key").derive(CONTEXT))


@dataclass(slots=True, eq=False)
class SimSession:
    """An accepted connection, and the gathered messages for its worker."""

    dialling: SimConnection
    over: SimulatedLinkConnection
    incarnation: str
    given: GivenAttempts
    intake: MessageIntake
    opened: bool = False
    assign: list[Assignment] = field(default_factory=list)
    cancel: list[str] = field(default_factory=list)
    acknowledged: list[str] = field(default_factory=list)
    keep: tuple[str, ...] | None = None
    drain: bool = False
    prewarm: tuple[PrewarmSpec, ...] | None = None
    replicas: tuple[ServingReplica, ...] | None = None
    routers: tuple[RouterAddress, ...] | None = None
    sent: int = 0
    received: int = 0

    def hang_up(self) -> None:
        """Closes the connection from the control plane's side."""
        self.dialling.link.close(self.dialling.hung_up, self.over)


@dataclass(slots=True, eq=False)
class _Known:
    incarnation: str
    seen_s: float
    session: SimSession | None


class SimGateway:
    """The connections of one epoch to its workers."""

    def __init__(
        self,
        engine: Environment,
        *,
        epoch: int,
        post: Callable[[Event], None],
        knows: Callable[[str], bool],
        watchdog_s: float,
        interval_s: float,
    ) -> None:
        """Creates a gateway without connections.

        Args:
            engine: the event queue.
            epoch: of the leader.
            post: queues an event of the machine.
            knows: whether the machine has a worker of this name.
            watchdog_s: silence after which a worker is lost.
            interval_s: between a worker's synchronisations.
        """
        self._engine = engine
        self._epoch = epoch
        self._post = post
        self._knows = knows
        self._watchdog_s = watchdog_s
        self._interval_s = interval_s
        self._known: dict[str, _Known] = {}
        self._ready: dict[str, SimSession] = {}
        self._closed = False
        self._issuer = TokenIssuer(_TOKENS, lambda: engine.now_s, lambda: engine.now_s)

    # -- from workers ----------------------------------------------------------------------------

    def hello(self, dialling: SimConnection, over: SimulatedLinkConnection, hello: Hello) -> None:
        """Accepts a worker's full state, unless another process has its name."""
        name = hello.shape.name
        known = self._known.get(name)
        holder = TokenHolder(hello.shape.pool, name, hello.incarnation)
        given = GivenAttempts(self._issuer, holder)
        session = SimSession(dialling, over, hello.incarnation, given, MessageIntake(given))
        if self._closed or hello.epoch > self._epoch:
            session.hang_up()
            return
        if known is not None and known.session is not None:
            another = known.incarnation != hello.incarnation
            if another or known.session.over is over:  # a second Hello on one connection is invalid
                session.hang_up()
                known.session = known.session if another else None
                return
            known.session.hang_up()
        self._known[name] = _Known(hello.incarnation, self._engine.now_s, session)
        if not over.alive:  # the message was late: its connection is already closed
            self._engine.after(0.0, self.disconnected, name, over)
        dialling.link.send("down", over, dialling.welcomed, self._epoch, self._interval_s)
        checked = session.intake.hello(hello)
        self._post(WorkerConnected(checked.message, checked.generations))

    def sync(self, name: str, over: SimulatedLinkConnection, sync: Sync, goodbye: bool) -> None:
        """Accepts a worker's changes; closes the session if a message is missing."""
        known = self._known.get(name)
        if known is None or known.session is None or known.session.over is not over:
            return
        known.session.received += 1
        if sync.seq != known.session.received:
            known.session.hang_up()
            known.session = None
            return
        known.seen_s = self._engine.now_s
        if goodbye:
            sync = msgspec.structs.replace(sync, goodbye=True)
            del self._known[name]
        checked = known.session.intake.sync(sync)
        incarnation = known.incarnation
        self._post(WorkerSynced(name, incarnation, checked.message, checked.generations))

    def disconnected(self, name: str, over: SimulatedLinkConnection) -> None:
        """Drops a broken connection; its worker may reconnect until the watchdog."""
        known = self._known.get(name)
        if known is not None and known.session is not None and known.session.over is over:
            known.session = None

    def watch(self) -> None:
        """Drops workers that were silent for too long."""
        horizon = self._engine.now_s - self._watchdog_s
        for name in [n for n, k in self._known.items() if k.seen_s < horizon]:
            self.lost(name, "no synchronisation within the watchdog")
        for name, known in self._known.items():
            session = known.session
            if session is not None and session.opened and not self._knows(name):
                session.hang_up()

    def lost(self, name: str, reason: str) -> None:
        """Drops a worker and reports it as lost."""
        known = self._known.pop(name, None)
        if known is not None:
            self._post(WorkerLost(name, reason))
            if known.session is not None:
                known.session.hang_up()

    # -- to workers ------------------------------------------------------------------------------

    def _session(self, worker: str) -> SimSession | None:
        known = self._known.get(worker)
        session = None if known is None else known.session
        if session is not None:
            self._ready[worker] = session
        return session

    def assign(
        self, worker: str, assignment: Assignment, generation: int, read_scopes: tuple[str, ...]
    ) -> None:
        """Queues an assignment; dropped before the answer to the worker's full state."""
        session = self._session(worker)
        if session is not None and session.opened:
            token = session.given.give(assignment.attempt_id, generation, read_scopes)
            session.assign.append(msgspec.structs.replace(assignment, token=token))

    def cancel(self, worker: str, attempt_id: str) -> None:
        """Queues the cancellation of an attempt."""
        session = self._session(worker)
        if session is not None and session.opened:
            session.cancel.append(attempt_id)

    def prewarm(self, worker: str, openings: tuple[PrewarmSpec, ...]) -> None:
        """Queues the complete list of engines that the worker should prewarm."""
        session = self._session(worker)
        if session is not None:
            session.prewarm = openings

    def serve(
        self,
        worker: str,
        replicas: tuple[ServingReplica, ...],
        routers: tuple[RouterAddress, ...],
    ) -> None:
        """Queues the complete lists of replicas of services and routers."""
        session = self._session(worker)
        if session is not None:
            session.replicas = tuple(map(session.given.give_replica, replicas))
            session.routers = routers

    def acknowledge(self, worker: str, attempt_id: str) -> None:
        """Queues the acknowledgement of an attempt's report."""
        session = self._session(worker)
        if session is not None and session.opened:
            session.given.forget(attempt_id)
            session.acknowledged.append(attempt_id)

    def confirm_attempts(self, worker: str, attempts: tuple[str, ...]) -> None:
        """Answers a full state; from then on assignments are accepted."""
        session = self._session(worker)
        if session is not None:
            session.assign, session.cancel, session.acknowledged = [], [], []
            session.keep, session.opened = attempts, True

    def drain(self, worker: str) -> bool:
        """Asks a worker to drain; returns whether it is connected."""
        session = self._session(worker)
        if session is None:
            return False
        session.drain = True
        return True

    def flush(self) -> None:
        """Sends the gathered messages."""
        ready, self._ready = self._ready, {}
        for session in ready.values():
            if not session.opened:
                continue
            session.sent += 1
            message = Desired(
                epoch=self._epoch,
                seq=session.sent,
                assign=tuple(session.assign),
                cancel=tuple(session.cancel),
                acknowledged=tuple(session.acknowledged),
                full_state=session.keep is not None,
                keep=session.keep or (),
                drain=session.drain,
                prewarm=session.prewarm,
                replicas=session.replicas,
                routers=session.routers,
            )
            session.assign, session.cancel, session.acknowledged = [], [], []
            session.keep, session.drain, session.prewarm = None, False, None
            session.replicas = session.routers = None
            session.dialling.link.send("down", session.over, session.dialling.receive, message)

    def close(self) -> None:
        """Closes every connection: the control plane has crashed."""
        self._closed = True
        for known in self._known.values():
            if known.session is not None:
                known.session.hang_up()
