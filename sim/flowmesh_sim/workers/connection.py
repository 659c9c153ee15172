"""A simulated worker's connection: it dials, says everything, then what is new, and dials again."""

from typing import TYPE_CHECKING, Any

from flowmesh_core.protocol.messages import Desired
from flowmesh_sim.kernel.network import Link, SimulatedLinkConnection

if TYPE_CHECKING:
    from flowmesh_sim.workers.worker import SimWorker

BACKOFF_FIRST_S = 0.1
BACKOFF_MAX_S = 5.0
ENDS_AGAIN_EVERY_S = 30.0
GATHER_S = 0.0005
"""What is ready within so long joins a message."""


class SimConnection:
    """Keeps one connection to whoever leads.

    Attributes:
        epoch: the highest that it has seen.
        orphaned_s: since when nobody answered; 0 while somebody does.
    """

    def __init__(self, worker: "SimWorker", phase_s: float) -> None:
        """Dials at once."""
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
        self._seq = self._heard = 0
        self._sending = False
        self._backoff_s = BACKOFF_FIRST_S
        self._ends_again_s = self._engine.now_s + ENDS_AGAIN_EVERY_S
        self._engine.after(0.0, self.dial)

    def dial(self) -> None:
        """Opens a connection and says everything; tries again where nobody answers."""
        worker = self._worker
        if worker.gone or self.over is not None:
            return
        gateway = self._site.gateway
        if gateway is None or not self.link.up:
            self._later()
            return
        self.over, self._gateway = SimulatedLinkConnection(), gateway
        self._welcomed, self._seq, self._heard = False, 0, 0
        hello = worker.hello(self.epoch)
        worker.held.said_everything()
        self.link.send("up", self.over, gateway.hello, self, self.over, hello)

    def _later(self) -> None:
        pause_s = self._backoff_s * self._site.jitter()
        self._backoff_s = min(2 * self._backoff_s, BACKOFF_MAX_S)
        self._engine.after(pause_s, self.dial)

    # -- called by the gateway through the link --------------------------------------------------

    def welcomed(self, epoch: int, interval_s: float) -> None:
        """The worker is known; said again, it is where another message belongs."""
        if epoch < self.epoch or self._welcomed:
            self.broken()
            return
        self.epoch = epoch
        self._welcomed, self._interval_s = True, interval_s
        self._backoff_s = BACKOFF_FIRST_S
        self._engine.after(self._phase_s * interval_s, self._beat, self.over)

    def told(self, desired: Desired) -> None:
        """What the worker should hold has changed; a gap in the numbers ends the connection."""
        self._heard += 1
        if desired.epoch < self.epoch or not self._welcomed or desired.seq != self._heard:
            self.broken()
            return
        self._worker.follow(desired)

    def hung_up(self, over: SimulatedLinkConnection) -> None:
        """The other end has closed a connection."""
        if over is self.over:
            self.broken()

    def broken(self) -> None:
        """The connection is gone; another is opened after a while."""
        if self.over is None:
            return
        over, self.over = self.over, None
        over.alive = False
        self._welcomed = False
        self._gateway.disconnected(self._worker.name, over)
        if not self._worker.gone:
            self._later()

    # -- speaking --------------------------------------------------------------------------------

    def news(self) -> None:
        """There is something to say."""
        if self._welcomed and not self._sending:
            self._sending = True
            self._engine.after(GATHER_S, self._say, self.over)

    def _beat(self, over: SimulatedLinkConnection) -> None:
        if over is not self.over or self._worker.gone:
            return
        if self._engine.now_s >= self._ends_again_s:
            self._ends_again_s = self._engine.now_s + ENDS_AGAIN_EVERY_S
            self._worker.held.say_ends_again()
        self._worker.refresh()
        self._say(over)
        self._engine.after(self._interval_s, self._beat, over)

    def _say(self, over: SimulatedLinkConnection) -> None:
        self._sending = False
        if over is not self.over or not self._welcomed or self._worker.gone:
            return
        self._send(goodbye=False)

    def _send(self, *, goodbye: bool) -> None:
        worker = self._worker
        if self.over is None:
            return
        self._seq += 1
        held = worker.held
        lanes = worker.lanes.report() if held.lanes_changed else ()
        components = worker.components() if held.components_changed else ()
        sync = held.next_sync(self._seq, lanes, components)
        self.link.send("up", self.over, self._gateway.sync, worker.name, self.over, sync, goodbye)

    def goodbye(self) -> None:
        """The last message: the worker holds nothing any more."""
        if self._welcomed:
            self._send(goodbye=True)

    def closed(self) -> None:
        """The process has ended; its last message is still on its way."""
        over, self.over = self.over, None
        if over is not None:
            self.link.send("up", over, self._gateway.disconnected, self._worker.name, over)
