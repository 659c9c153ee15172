"""The simulated fabric: event queue, store, the current leader, and submissions.

It outlives control planes: after a crash another one starts, with the durable records of the
bucket.
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
    from flowmesh_sim.serving.call_fabric import CallFabric

EPOCH_S = 1_000_000_000.0
"""The wall clock at virtual second 0."""
RESUBMIT_S = 1.0
"""Seconds until a client retries a submission that was not accepted."""


class SimulatedFabric:
    """Everything in a simulation except workers, load and faults.

    Attributes:
        grace_s: younger blobs are not collected.
        skew_s: the error of the control plane's wall clock.
        control: the leader; None while there is none.
        calls: the routers of services; None where services get no calls.
        submitted_s: when each run was submitted, in virtual time; ``open`` has the unfinished ones.
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
        """Creates a fabric without a leader."""
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
        self.calls: CallFabric | None = None
        self.submitted_s: dict[str, float] = {}
        self.open: dict[str, None] = {}
        self.on_end: list[Callable[[str], None]] = []
        self._jitter = self.dice.stream("dialling")

    def start(self) -> None:
        """Starts a control plane unless one leads already."""
        if self.control is None:
            self.control = SimulatedControlPlane(self)

    def crash(self, down_s: float) -> None:
        """Crashes the control plane; another one starts after ``down_s``."""
        if self.control is not None:
            control, self.control = self.control, None
            control.crash()
            self.engine.after(down_s, self.start)

    def start_second_leader(self, for_s: float) -> None:
        """Starts a second leader; the former one notices after ``for_s``."""
        former = self.control
        if former is not None:
            self.control = SimulatedControlPlane(self)
            self.engine.after(for_s, former.crash)

    @property
    def gateway(self) -> SimGateway | None:
        """The gateway of the leader; None without a leader."""
        return None if self.control is None else self.control.gateway

    def jitter(self) -> float:
        """Returns a random factor for the wait before a reconnect."""
        return self._jitter.uniform(0.5, 1.0)

    def wall_s(self) -> float:
        """Returns the control plane's wall clock."""
        return EPOCH_S + self.engine.now_s + self.skew_s

    def submit(self, submitted: Submitted) -> None:
        """Submits a run, and retries until it is accepted."""
        if submitted.uid not in self.submitted_s:
            self.submitted_s[submitted.uid] = self.engine.now_s
            self.open[submitted.uid] = None
        if self.control is None or self.store.down:
            self.engine.after(RESUBMIT_S, self.submit, submitted)
            return
        for reference in submitted.artifacts.values():
            self.store.contents.allow(reference, submitted.scopes.publish)
            self.store.contents.allow(reference, submitted.scopes.private)
            for blob in reference.blobs():
                self.store.put_blob(blob, reference.size_bytes)
        self.control.submit(submitted)

    def cancel(self, uid: str) -> None:
        """Cancels a run, as a client does."""
        self._post(CancelRequested(uid))

    def amend(self, uid: str, changes: dict[str, Any]) -> None:
        """Amends a run, as a client does."""
        self._post(Amended(uid, changes))

    def _post(self, event: Event) -> None:
        if self.control is not None:
            self.control.post(event)

    def ended(self, uid: str, status: RunStatus) -> None:
        """Records that a run's ``final`` is written."""
        self.trace.add(self.engine.now_s, "final", (uid, status.phase, status.paid_nanousd))
        self.open.pop(uid, None)
        self.measures.ended(uid, status)
        for call in self.on_end:
            call(uid)

    @property
    def book(self) -> FabricAccount:
        """The leader's fabric account, or the one that was last written."""
        if self.control is not None:
            return self.control.machine.state.book
        record = self.bucket.accounts
        return record.book if record is not None else FabricAccount()
