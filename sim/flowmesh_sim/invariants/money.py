"""Checks money and statuses: the accounts add up to the bill, statuses match their runs."""

from collections import Counter
from typing import TYPE_CHECKING

from flowmesh_api.v1.enums import Phase, StepState
from flowmesh_api.v1.runs import RunStatus
from flowmesh_api.v1.why import AttemptLine
from flowmesh_core.accounting.meter import NANOSECONDS_PER_HOUR
from flowmesh_core.machine.events import Event, WorkerConnected
from flowmesh_core.machine.model import Run
from flowmesh_core.machine.state import State
from flowmesh_core.status.projection import run_status
from flowmesh_sim.kernel.violation import violated

if TYPE_CHECKING:
    from flowmesh_sim.control.control import SimulatedControlPlane
    from flowmesh_sim.control.fabric import SimulatedFabric


class MoneyInvariants:
    """Checks the fabric account of all epochs, and every run's end."""

    def __init__(self) -> None:
        self._ended: dict[str, str] = {}
        self._bills: dict[str, tuple[int, float]] = {}
        self._closed_nanousd = 0
        self._by_wall = True
        self._next_run = 0

    def applied(self, control: "SimulatedControlPlane", event: Event) -> None:
        """Updates the open bills of workers after an event."""
        if type(event) is WorkerConnected:
            self._open_bill(control.machine.state, event)
        self._close_bills(control)

    def observe(self, control: "SimulatedControlPlane") -> None:
        """Checks the fabric account, and the status of one run, in turn."""
        state = control.machine.state
        book = state.book
        open_bills = sum(a.charged_nanousd for a in state.attempts.values())
        if book.unsettled_nanousd != open_bills:
            violated(
                "money",
                f"bill {book.bill_nanousd} = receipts {book.receipts_nanousd} + services "
                f"{book.services_nanousd} + fabric {book.fabric_nanousd} + "
                f"{book.unsettled_nanousd}, attempts have {open_bills}",
            )
        if state.service_spend.total() != book.services_nanousd:
            violated(
                "money",
                f"services paid {state.service_spend.total()}, the book has "
                f"{book.services_nanousd}",
            )
        by_day = sum(row.paid_nanousd for row in state.service_charges.rows())
        if by_day != book.services_nanousd:
            violated(
                "money",
                f"services paid {by_day} by days, the book has {book.services_nanousd}",
            )
        if state.runs:
            self._next_run = (self._next_run + 1) % len(state.runs)
            uid = list(state.runs)[self._next_run]
            _agrees(state.runs[uid], run_status(state, uid, control.now_s()))

    def finished(self, control: "SimulatedControlPlane", uid: str, status: RunStatus) -> None:
        """Checks a verdict: it is the run's only one, and its receipt equals its ledger."""
        if uid in self._ended:
            violated(f"run {uid}", f"ended as {self._ended[uid]}, and again as {status.phase}")
        self._ended[uid] = status.phase
        run = control.machine.state.runs[uid]
        still = [path for path, step in run.steps.items() if not step.ended]
        if still:
            violated(f"run {uid}", f"is {status.phase} while {still} have not ended")
        _agrees(run, status)
        charged = sum(x.share_nanousd for x in run.lines if isinstance(x, AttemptLine))
        if charged != status.paid_nanousd:
            violated(f"run {uid}", f"paid {status.paid_nanousd}, its ledger says {charged}")

    # -- the bill, computed independently of the machine -----------------------------------------

    def clock_was_set(self) -> None:
        """Disables the check of the bill: lifetimes of workers are not known any more."""
        self._by_wall = False

    def _open_bill(self, state: State, event: WorkerConnected) -> None:
        hello = event.hello
        worker = state.workers.get(hello.shape.name)
        if worker is not None and hello.incarnation not in self._bills:
            self._bills[hello.incarnation] = (hello.shape.price_nanousd_per_hour, worker.started_s)

    def _close_bills(self, control: "SimulatedControlPlane") -> None:
        workers = control.machine.state.workers
        if len(workers) == len(self._bills):
            return
        known = {w.incarnation for w in workers.values()}
        for incarnation in [i for i in self._bills if i not in known]:
            price, started_s = self._bills.pop(incarnation)
            lived_ns = round(control.now_s() * 1e9) - round(started_s * 1e9)
            self._closed_nanousd += price * lived_ns // NANOSECONDS_PER_HOUR

    def at_end(self, fabric: "SimulatedFabric", control: "SimulatedControlPlane") -> None:
        """Checks the end: everything is settled, and the bill equals the cost of workers."""
        state, book = control.machine.state, control.machine.state.book
        if state.actions or state.attempts or state.ready:
            violated(
                "the end", f"{len(state.actions)} actions, {len(state.attempts)} attempts stay"
            )
        if book.unsettled_nanousd:
            violated("the end", f"{book.unsettled_nanousd} nano-dollars are unsettled")
        paid = sum(f.paid_nanousd for f in fabric.bucket.finals.values())
        if paid != book.receipts_nanousd:
            violated("the end", f"runs paid {paid}, the book has {book.receipts_nanousd}")
        if self._by_wall and control.epoch == 1:
            living = sum(w.meter.billed_nanousd for w in state.workers.values())
            if living + self._closed_nanousd != book.bill_nanousd:
                violated(
                    "the end",
                    f"workers cost {living + self._closed_nanousd}, the bill {book.bill_nanousd}",
                )


def _agrees(run: Run, status: RunStatus) -> None:
    """Checks that a status agrees with the steps of its run."""
    counted = Counter(str(s.state) for s in run.steps.values())
    if {str(k): v for k, v in status.counts.items()} != counted:
        violated(f"run {run.uid}", f"its status says {status.counts}, its steps {counted}")
    paid = sum(s.paid_nanousd for s in run.steps.values())
    if status.paid_nanousd != paid:
        violated(f"run {run.uid}", f"its status says {status.paid_nanousd} paid, its steps {paid}")
    for step in status.steps:
        if step.state == StepState.COMPLETED and step.done < step.actions:
            violated(
                f"run {run.uid}", f"{step.path} is complete with {step.done} of {step.actions}"
            )
    good = {StepState.COMPLETED, StepState.SKIPPED}
    if status.phase == Phase.SUCCEEDED and any(s.state not in good for s in run.steps.values()):
        violated(f"run {run.uid}", f"is {status.phase} with steps {dict(counted)}")
