"""A simulated worker's connection: connects, reports everything, then changes; reconnects.

It models the shipped ``flowmesh_worker.agent.connection`` over simulated links.
"""

import math
from typing import TYPE_CHECKING, Any

from flowmesh_core.protocol.messages import Desired
from flowmesh_core.worker_agent.events import Connected, DesiredReceived, Disconnected
from flowmesh_sim.kernel.environment import Timer, cancel
from flowmesh_sim.kernel.network import Link, SimulatedLinkConnection

if TYPE_CHECKING:
    from flowmesh_sim.workers.worker import SimWorker

BACKOFF_FIRST_S = 0.1
BACKOFF_MAX_S = 5.0
GATHER_S = 0.0005
"""Changes within this time are sent in one message."""


class SimConnection:
    """Keeps one connection to the control plane that leads.

    Attributes:
        epoch: the highest seen.
        over: the connection; None while there is none.
    """

    def __init__(self, worker: "SimWorker", phase_s: float) -> None:
        """Connects at once.

        Args:
            worker: makes the reports.
            phase_s: where in an interval of one second its heartbeats fall, in [0, 1).
        """
        self._worker = worker
        self._engine = worker.engine
        self._site = worker.around.network
        self.link = Link(self._engine, worker.around.latency_s, self._site.dice.stream("links"))
        self.over: SimulatedLinkConnection | None = None
        self._gateway: Any = None
        self.epoch = 0
        self._welcomed = False
        self._interval_s = 1.0
        self._phase_s = phase_s
        self._seq = self._received = 0
        self._due_s = math.inf
        self._timer: Timer | None = None
        self._backoff_s = BACKOFF_FIRST_S
        self._engine.after(0.0, self.dial)

    def dial(self) -> None:
        """Opens a connection and reports everything; retries later if that fails."""
        worker = self._worker
        if worker.gone or self.over is not None:
            return
        gateway = self._site.gateway
        if gateway is None or not self.link.up:
            self._retry_later()
            return
        self.over, self._gateway = SimulatedLinkConnection(), gateway
        self._welcomed, self._seq, self._received = False, 0, 0
        self._all_sent()
        hello = worker.hello(self.epoch)
        self.link.send("up", self.over, gateway.hello, self, self.over, hello)

    def _retry_later(self) -> None:
        pause_s = self._backoff_s * self._site.jitter()
        self._backoff_s = min(2 * self._backoff_s, BACKOFF_MAX_S)
        self._engine.after(pause_s, self.dial)

    # -- called by the gateway through the link --------------------------------------------------

    def welcomed(self, epoch: int, interval_s: float) -> None:
        """Begins reporting; a second welcome, or one of an older epoch, ends the connection."""
        if epoch < self.epoch or self._welcomed:
            self.broken()
            return
        self.epoch = epoch
        self._welcomed, self._interval_s = True, interval_s
        self._backoff_s = BACKOFF_FIRST_S
        self._engine.after(self._phase_s * interval_s, self._beat, self.over)
        self._schedule()
        self._worker.shell.post(Connected())

    def receive(self, desired: Desired) -> None:
        """Passes the desired state on; a gap in the numbers ends the connection."""
        self._received += 1
        if desired.epoch < self.epoch or not self._welcomed or desired.seq != self._received:
            self.broken()
            return
        self._worker.shell.post(DesiredReceived(desired))

    def hung_up(self, over: SimulatedLinkConnection) -> None:
        """Ends a connection that the gateway has closed."""
        if over is self.over:
            self.broken()

    def broken(self) -> None:
        """Ends the connection and opens another later."""
        if self.over is None:
            return
        over, self.over = self.over, None
        over.alive = False
        self._welcomed = False
        self._all_sent()
        self._gateway.disconnected(self._worker.name, over)
        if not self._worker.gone:
            self._worker.shell.post(Disconnected())
            self._retry_later()

    # -- reports ---------------------------------------------------------------------------------

    def send_by(self, at_s: float) -> None:
        """Sends the next report by this time; without a connection, ``Hello`` carries it."""
        if self.over is not None and at_s < self._due_s:
            self._due_s = at_s
            self._schedule()

    def _schedule(self) -> None:
        if self._welcomed and self._due_s < math.inf:
            cancel(self._timer)
            at_s = max(self._due_s, self._engine.now_s + GATHER_S)
            self._timer = self._engine.at(at_s, self._send, self.over)

    def _all_sent(self) -> None:
        cancel(self._timer)
        self._timer, self._due_s = None, math.inf

    def _beat(self, over: SimulatedLinkConnection) -> None:
        if over is not self.over or self._worker.gone:
            return
        self._worker.refresh()
        self._send(over)
        self._engine.after(self._interval_s, self._beat, over)

    def _send(self, over: SimulatedLinkConnection, *, goodbye: bool = False) -> None:
        worker = self._worker
        self._all_sent()
        self._seq += 1
        sync = worker.agent.next_sync(self._seq, self._engine.now_s, worker.components)
        self.link.send("up", over, self._gateway.sync, worker.name, over, sync, goodbye)

    def goodbye(self) -> None:
        """Sends the last message of a drained worker."""
        if self.over is not None and self._welcomed:
            self._send(self.over, goodbye=True)

    def closed(self) -> None:
        """Closes the connection with the process; messages under way still arrive."""
        over, self.over = self.over, None
        self._all_sent()
        if over is not None:
            self.link.send("up", over, self._gateway.disconnected, self._worker.name, over)
