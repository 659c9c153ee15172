"""What must hold in every simulated world, whatever strikes it; checked all along and at the end.

One publication per action and generation; no dispatch before its inputs are there; no device
over-committed; no bytes across scopes; budgets kept; receipts and fabric and what is unsettled are
the bill; every run ends, once; nothing stays behind.
"""

from collections import Counter
from typing import TYPE_CHECKING

from flowmesh_core.errors import InvariantError
from flowmesh_core.receipts.meter import NANOSECONDS_PER_HOUR
from flowmesh_core.run.commands import Assign, Publish
from flowmesh_core.run.events import Event, WorkerConnected
from flowmesh_core.run.model import Run
from flowmesh_core.run.state import State, parse_attempt_id
from flowmesh_core.run.states import ActionState
from flowmesh_core.status.view import RunStatus

if TYPE_CHECKING:
    from flowmesh_sim.control import Control
    from flowmesh_sim.fabric import Fabric
    from flowmesh_sim.store import SimStore


class Checker:
    """Raises at the first thing that must not be.

    Attributes:
        checks: how often the whole state was looked at.
    """

    def __init__(self, every: int = 1) -> None:
        """Looks at the whole state at every so many events; 0 only at the end."""
        self._every = every
        self._events = 0
        self.checks = 0
        self.store: SimStore | None = None
        self._generations = Counter[tuple[str, str, int]]()
        self._ended: dict[str, str] = {}
        self._bills: dict[str, tuple[int, float]] = {}
        self._closed_nanousd = 0
        self._by_wall = True

    def wrong(self, where: str, what: str) -> None:
        """Ends the simulation.

        Raises:
            InvariantError: always.
        """
        raise InvariantError(what, where=where)

    # -- as it goes on ---------------------------------------------------------------------------

    def applied(self, control: "Control", event: Event) -> None:
        """After every event."""
        state = control.machine.state
        self._events += 1
        if type(event) is WorkerConnected:
            self._came(state, event)
        self._left(control)
        if self._every and self._events % self._every == 0:
            self.check(control)

    def check(self, control: "Control") -> None:
        """The whole state."""
        self.checks += 1
        state = control.machine.state
        self._money(state)
        self._runs(state)
        self._actions(state)
        self._memory(control)

    def _money(self, state: State) -> None:
        book = state.book
        open_bills = sum(a.charged_nanousd for a in state.attempts.values())
        if book.unsettled_nanousd != open_bills:
            self.wrong(
                "money",
                f"bill {book.bill_nanousd} = receipts {book.receipts_nanousd} + fabric "
                f"{book.fabric_nanousd} + {book.unsettled_nanousd}, attempts have {open_bills}",
            )

    def _runs(self, state: State) -> None:
        for uid, run in state.runs.items():
            still = sum(not s.ended for s in run.steps.values())
            if run.open_steps != still:
                self.wrong(
                    f"run {uid}", f"{run.open_steps} open steps are counted, {still} are open"
                )
            if run.reserved_nanousd < 0:
                self.wrong(f"run {uid}", f"{run.reserved_nanousd} nano-dollars are reserved")

    def _actions(self, state: State) -> None:
        for key in state.ready:
            if state.actions[key].state is not ActionState.READY:
                self.wrong(f"action {key}", f"is in the ready set and {state.actions[key].state}")
        for key, action in state.actions.items():
            if not action.subscribers:
                self.wrong(f"action {key}", "nobody subscribes to it")
            for subscriber in action.subscribers:
                scopes = state.runs[subscriber.uid].scopes
                if key.scope not in {scopes.publish, scopes.private, *scopes.lookup}:
                    self.wrong(f"action {key}", f"run {subscriber.uid} may not read its scope")

    def _memory(self, control: "Control") -> None:
        machine = control.machine
        dirty = machine.state.dirty
        for view in machine.snapshot(control.now_s()).workers:
            if view.free_memory_mib < 0:
                held = {s[:8]: (n.held, n.memory_mib) for s, n in view.lanes.items() if n.held}
                self.wrong(
                    f"worker {view.name}", f"over-committed by {-view.free_memory_mib} MiB: {held}"
                )
        machine.state.dirty = dirty

    def assigned(self, control: "Control", c: Assign) -> None:
        """At every dispatch: its inputs are published, and some run may read them and pay."""
        assert self.store is not None
        state, contents = control.machine.state, self.store.contents
        action = state.actions[parse_attempt_id(c.assignment.attempt_id)]
        runs = [state.runs[s.uid] for s in action.subscribers]
        refs = [*c.assignment.inputs.items()]
        if c.assignment.resume is not None:
            refs.append(("resume", c.assignment.resume))
        for port, ref in refs:
            a = ref.artifact
            blobs = [b for b in a.blobs() if b != a.blob or a.manifest is None]
            for blob in blobs:
                if blob in ref.inline or a.value is not None:
                    continue
                if blob not in self.store.ever:
                    self.wrong(c.assignment.attempt_id, f"input {port} was never there")
                allowed = contents.scopes.get(blob, set())
                if not any(_reads(run, allowed) for run in runs):
                    self.wrong(
                        c.assignment.attempt_id, f"input {port} is of scopes {sorted(allowed)}"
                    )
        # Of several runs one that can pay is enough: another's reservations may pass its budget.
        held = action.attempts[c.assignment.attempt_id].reserved
        if not any(
            not r.budget_nanousd or r.paid_nanousd + held.get(r.uid, 0) <= r.budget_nanousd
            for r in runs
        ):
            self.wrong(c.assignment.attempt_id, "it was dispatched past every budget")

    def wrote(self, c: Publish) -> None:
        """At every write of a result that won."""
        assert self.store is not None
        name = (c.key.scope, c.key.action_id, c.result.generation)
        self._generations[name] += 1
        if self._generations[name] > 1:
            self.wrong(f"action {c.key}", f"generation {c.result.generation} was published twice")
        for artifact in c.result.outputs.values():
            self.store.contents.allow(artifact, c.key.scope)

    def finished(self, control: "Control", uid: str, status: RunStatus) -> None:
        """At every verdict."""
        if uid in self._ended:
            self.wrong(f"run {uid}", f"ended as {self._ended[uid]}, and again as {status.phase}")
        self._ended[uid] = status.phase
        run = control.machine.state.runs[uid]
        still = [path for path, step in run.steps.items() if not step.ended]
        if still:
            self.wrong(f"run {uid}", f"is {status.phase} while {still} have not ended")
        counted = Counter(str(s.state) for s in run.steps.values())
        if {str(k): v for k, v in status.counts.items()} != counted:
            self.wrong(f"run {uid}", f"its status says {status.counts}, its steps {counted}")

    # -- the bill, worked out beside the machine -------------------------------------------------

    def clock_was_set(self) -> None:
        """The wall clock stepped: lifetimes by it are not lifetimes any more."""
        self._by_wall = False

    def _came(self, state: State, event: WorkerConnected) -> None:
        hello = event.hello
        worker = state.workers.get(hello.shape.name)
        if worker is not None and hello.incarnation not in self._bills:
            self._bills[hello.incarnation] = (hello.shape.price_nanousd_per_hour, worker.started_s)

    def _left(self, control: "Control") -> None:
        workers = control.machine.state.workers
        if len(workers) == len(self._bills):
            return
        known = {w.incarnation for w in workers.values()}
        for incarnation in [i for i in self._bills if i not in known]:
            price, started_s = self._bills.pop(incarnation)
            lived_ns = round(control.now_s() * 1e9) - round(started_s * 1e9)
            self._closed_nanousd += price * lived_ns // NANOSECONDS_PER_HOUR

    # -- at the end ------------------------------------------------------------------------------

    def at_end(self, fabric: "Fabric", *, limit_s: float) -> None:
        """When nothing goes on any more."""
        lost = sorted(fabric.open)
        if lost:
            self.wrong(
                f"runs {', '.join(lost[:5])}",
                f"have not ended after {limit_s:g} s: {_story(fabric)}",
            )
        control = fabric.control
        if control is None:
            return
        self.check(control)
        state, book = control.machine.state, control.machine.state.book
        if state.actions or state.attempts or state.ready:
            self.wrong(
                "the end", f"{len(state.actions)} actions, {len(state.attempts)} attempts stay"
            )
        if book.bill_nanousd != book.receipts_nanousd + book.fabric_nanousd:
            self.wrong("the end", f"{book.unsettled_nanousd} nano-dollars are unsettled")
        paid = sum(f.paid_nanousd for f in fabric.bucket.finals.values())
        if paid != book.receipts_nanousd:
            self.wrong("the end", f"runs paid {paid}, the book has {book.receipts_nanousd}")
        if self._by_wall and control.epoch == 1:
            living = sum(w.meter.billed_nanousd for w in state.workers.values())
            if living + self._closed_nanousd != book.bill_nanousd:
                self.wrong(
                    "the end",
                    f"workers cost {living + self._closed_nanousd}, the bill {book.bill_nanousd}",
                )


def _reads(run: Run, scopes: set[str]) -> bool:
    return bool(scopes & {run.scopes.publish, run.scopes.private, *run.scopes.lookup})


def _story(fabric: "Fabric") -> str:
    if fabric.control is None:
        return "nobody leads"
    state = fabric.control.machine.state
    told = [
        f"{uid} {path} {s.state} {s.wait_reason} left={s.pending_parts} {run.unsettled=}"
        for uid, run in state.runs.items()
        for path, s in run.steps.items()
        if not s.ended
    ]
    return f"{len(state.workers)} workers; " + "; ".join(told[:10])
