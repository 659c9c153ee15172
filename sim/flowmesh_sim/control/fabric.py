"""The simulated fabric: engine, store, network, whoever leads, and the door that runs come in by.

It outlives control planes: one that crashes is followed by another, which finds in the bucket what
was durable.
"""

from typing import TYPE_CHECKING, Any

from flowmesh_api.v1.runs import RunStatus
from flowmesh_control.settings import ControlSettings
from flowmesh_core.accounting.fabric_account import FabricAccount
from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.machine.events import Amended, CancelRequested, Event, Submitted
from flowmesh_sim.control.control import SimulatedControlPlane
from flowmesh_sim.control.gateway import SimGateway
from flowmesh_sim.control.records import SimBucket
from flowmesh_sim.kernel.constants import Constants
from flowmesh_sim.kernel.environment import Environment, RandomStreams
from flowmesh_sim.kernel.event_trace import EventTrace
from flowmesh_sim.models.store import SimStore
from flowmesh_sim.policies import Policy

if TYPE_CHECKING:
    from collections.abc import Callable

    from flowmesh_sim.invariants.checker import Checker
    from flowmesh_sim.run.measurements import Measures

EPOCH_S = 1_000_000_000.0
"""The wall clock at virtual second 0."""
AGAIN_S = 1.0
"""A client whose submission nobody took tries again after so long."""


class SimulatedFabric:
    """Everything but workers, load and faults.

    Attributes:
        grace_s: blobs that are younger are not collected.
        skew_s: how far the control plane's wall clock was set off.
        control: whoever leads; None while nobody does.
        wanted: when each run was submitted, in virtual time; ``open`` are those without an end.
        on_end: called with the uid of every run that has ended.
    """

    def __init__(
        self,
        *,
        facts: Constants,
        seed: int,
        settings: ControlSettings,
        tick_s: float,
        policy: Policy,
        trace: EventTrace,
        checker: "Checker",
        measures: "Measures",
        grace_s: float,
        catalog: Catalog,
    ) -> None:
        """Takes the constants, the seed, the knobs, who decides, who watches, and the engines."""
        self.engine = Environment()
        self.dice = RandomStreams(seed)
        self.facts = facts
        self.times: Any = facts.group("control")
        self.settings = settings
        self.tick_s = tick_s
        self.policy = policy
        self.trace = trace
        self.checker = checker
        self.measures = measures
        self.grace_s = grace_s
        self.catalog = catalog
        self.store = SimStore(lambda: self.engine.now_s)
        self.bucket = SimBucket()
        self.skew_s = 0.0
        self.control: SimulatedControlPlane | None = None
        self.wanted: dict[str, float] = {}
        self.open: dict[str, None] = {}
        self.on_end: list[Callable[[str], None]] = []
        self._jitter = self.dice.stream("dialling")

    def start(self) -> None:
        """A control plane begins to lead."""
        if self.control is None:
            self.control = SimulatedControlPlane(self)

    def crash(self, down_s: float) -> None:
        """The control plane dies; another one leads after a while."""
        if self.control is not None:
            control, self.control = self.control, None
            control.crash()
            self.engine.after(down_s, self.start)

    def usurp(self, for_s: float) -> None:
        """Another control plane leads; the former one does not know it for a while."""
        former = self.control
        if former is not None:
            self.control = SimulatedControlPlane(self)
            self.engine.after(for_s, former.crash)

    @property
    def gateway(self) -> SimGateway | None:
        """Where workers dial; None while nobody leads."""
        return None if self.control is None else self.control.gateway

    def jitter(self) -> float:
        """A factor of waits before dialling again."""
        return self._jitter.uniform(0.5, 1.0)

    def wall_s(self) -> float:
        """The control plane's wall clock."""
        return EPOCH_S + self.engine.now_s + self.skew_s

    def submit(self, submitted: Submitted) -> None:
        """A client submits a run, again and again until it is taken."""
        if submitted.uid not in self.wanted:
            self.wanted[submitted.uid] = self.engine.now_s
            self.open[submitted.uid] = None
        if self.control is None or self.store.down:
            self.engine.after(AGAIN_S, self.submit, submitted)
            return
        for reference in submitted.artifacts.values():
            self.store.contents.allow(reference, submitted.scopes.publish)
            self.store.contents.allow(reference, submitted.scopes.private)
            for blob in reference.blobs():
                self.store.put_blob(blob, reference.size_bytes)
        self.control.submit(submitted)

    def cancel(self, uid: str) -> None:
        """A client cancels a run."""
        self._tell(CancelRequested(uid))

    def amend(self, uid: str, changes: dict[str, Any]) -> None:
        """A client changes a run."""
        self._tell(Amended(uid, changes))

    def _tell(self, event: Event) -> None:
        if self.control is not None:
            self.control.post(event)

    def ended(self, uid: str, status: RunStatus) -> None:
        """A run's ``final`` is written."""
        self.trace.add(self.engine.now_s, "final", (uid, status.phase, status.paid_nanousd))
        self.open.pop(uid, None)
        self.measures.ended(uid, status)
        for call in self.on_end:
            call(uid)

    @property
    def book(self) -> FabricAccount:
        """The accounts of whoever leads, or as they were last written."""
        if self.control is not None:
            return self.control.machine.state.book
        record = self.bucket.accounts
        return record.book if record is not None else FabricAccount()
