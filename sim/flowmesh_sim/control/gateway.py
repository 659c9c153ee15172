"""The workers' door in virtual time: sessions, the watchdog, and what gathers for each worker.

The rules are those of the control plane's gateway: what is assigned before a full state was
answered is dropped, a silent worker is lost, one that was given up reports its full state again.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from flowmesh_core.machine.events import Event, WorkerConnected, WorkerLost, WorkerSynced
from flowmesh_core.protocol.messages import Assignment, Desired, Hello, PrewarmSpec, Sync
from flowmesh_sim.kernel.environment import Environment
from flowmesh_sim.kernel.network import SimulatedLinkConnection
from flowmesh_sim.workers.connection import SimConnection


@dataclass(slots=True, eq=False)
class SimSession:
    """A connection that was welcomed, and what gathers for it."""

    dialling: SimConnection
    over: SimulatedLinkConnection
    incarnation: str
    opened: bool = False
    assign: list[Assignment] = field(default_factory=list)
    cancel: list[str] = field(default_factory=list)
    acknowledged: list[str] = field(default_factory=list)
    keep: tuple[str, ...] | None = None
    drain: bool = False
    hold_open: tuple[PrewarmSpec, ...] | None = None
    sent: int = 0
    received: int = 0

    def hang_up(self) -> None:
        """Closes it from this end."""
        self.dialling.link.close(self.dialling.hung_up, self.over)


@dataclass(slots=True, eq=False)
class _Known:
    incarnation: str
    seen_s: float
    session: SimSession | None


class SimGateway:
    """The way to and from the workers, in one epoch."""

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
        """Takes where events go and the times of the protocol."""
        self._engine = engine
        self._epoch = epoch
        self._post = post
        self._knows = knows
        self._watchdog_s = watchdog_s
        self._interval_s = interval_s
        self._known: dict[str, _Known] = {}
        self._ready: dict[str, SimSession] = {}
        self._closed = False

    # -- from workers ----------------------------------------------------------------------------

    def hello(self, dialling: SimConnection, over: SimulatedLinkConnection, hello: Hello) -> None:
        """A worker says everything; it is refused while another process has its name."""
        name = hello.shape.name
        known = self._known.get(name)
        session = SimSession(dialling, over, hello.incarnation)
        if self._closed or hello.epoch > self._epoch:
            session.hang_up()
            return
        if known is not None and known.session is not None:
            another = known.incarnation != hello.incarnation
            if another or known.session.over is over:  # who is known says what is new, no more
                session.hang_up()
                known.session = known.session if another else None
                return
            known.session.hang_up()
        self._known[name] = _Known(hello.incarnation, self._engine.now_s, session)
        if not over.alive:  # it came late: its connection is found to be closed
            self._engine.after(0.0, self.disconnected, name, over)
        dialling.link.send("down", over, dialling.welcomed, self._epoch, self._interval_s)
        self._post(WorkerConnected(hello))

    def sync(self, name: str, over: SimulatedLinkConnection, sync: Sync, goodbye: bool) -> None:
        """A worker says what is new."""
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
        self._post(WorkerSynced(name, known.incarnation, sync))

    def disconnected(self, name: str, over: SimulatedLinkConnection) -> None:
        """A connection broke; its worker has until the watchdog to come back."""
        known = self._known.get(name)
        if known is not None and known.session is not None and known.session.over is over:
            known.session = None

    def watch(self) -> None:
        """Finds workers that have been silent for too long."""
        horizon = self._engine.now_s - self._watchdog_s
        for name in [n for n, k in self._known.items() if k.seen_s < horizon]:
            self.lost(name, "no synchronisation within the watchdog")
        for name, known in self._known.items():
            session = known.session
            if session is not None and session.opened and not self._knows(name):
                session.hang_up()

    def lost(self, name: str, reason: str) -> None:
        """A worker is given up."""
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

    def assign(self, worker: str, assignment: Assignment) -> None:
        """The worker should hold this attempt; dropped before its full state was answered."""
        session = self._session(worker)
        if session is not None and session.opened:
            session.assign.append(assignment)

    def cancel(self, worker: str, attempt_id: str) -> None:
        """The worker should no longer hold this attempt."""
        session = self._session(worker)
        if session is not None and session.opened:
            session.cancel.append(attempt_id)

    def hold_open(self, worker: str, openings: tuple[PrewarmSpec, ...]) -> None:
        """All hosts that the worker should hold open."""
        session = self._session(worker)
        if session is not None:
            session.hold_open = openings

    def acknowledge(self, worker: str, attempt_id: str) -> None:
        """The worker need not keep this report."""
        session = self._session(worker)
        if session is not None and session.opened:
            session.acknowledged.append(attempt_id)

    def keep(self, worker: str, attempts: tuple[str, ...]) -> None:
        """Answers a full state, which opens the way."""
        session = self._session(worker)
        if session is not None:
            session.assign, session.cancel, session.acknowledged = [], [], []
            session.keep, session.opened = attempts, True

    def drain(self, worker: str) -> bool:
        """Asks a worker to finish and leave; whether it is connected."""
        session = self._session(worker)
        if session is None:
            return False
        session.drain = True
        return True

    def flush(self) -> None:
        """Sends what has gathered."""
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
                everything=session.keep is not None,
                keep=session.keep or (),
                drain=session.drain,
                hold_open=session.hold_open,
            )
            session.assign, session.cancel, session.acknowledged = [], [], []
            session.keep, session.drain, session.hold_open = None, False, None
            session.dialling.link.send("down", session.over, session.dialling.receive, message)

    def close(self) -> None:
        """The control plane is gone: every connection breaks."""
        self._closed = True
        for known in self._known.values():
            if known.session is not None:
                known.session.hang_up()
