"""The machine's whole state, and the few primitives that all its modules share."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flowmesh_core.accounting.daily_totals import DailyTotals
from flowmesh_core.accounting.fabric_account import FabricAccount
from flowmesh_core.accounting.service_charges import ServiceCharges
from flowmesh_core.catalog.catalog import Catalog
from flowmesh_core.errors import Failure, InvariantError
from flowmesh_core.fleet.demand import DemandTracker
from flowmesh_core.fleet.ready import ReadyAction
from flowmesh_core.fleet.ready_index import ReadyIndex
from flowmesh_core.fleet.snapshot import Rejection, SignatureInfo
from flowmesh_core.machine import ledger_counts
from flowmesh_core.machine.commands import AppendLedgerLine, Command, RunChanged
from flowmesh_core.machine.connected_worker import Worker
from flowmesh_core.machine.events import ActionKey, ContentRevoked, NamespaceLimits
from flowmesh_core.machine.latest_checkpoint import LatestCheckpoint
from flowmesh_core.machine.model import (
    Action,
    Attempt,
    FailedTries,
    Hold,
    PendingLookUp,
    Run,
    StepLookUp,
)
from flowmesh_core.machine.orphans import OrphanedAttempt, OrphanedEnds
from flowmesh_core.machine.settings import Settings
from flowmesh_core.machine.specs import SignatureSpec
from flowmesh_core.machine.suspect_groups import SuspectGroup
from flowmesh_core.metrics.counters import MachineCounters
from flowmesh_core.protocol.messages import PrewarmSpec
from flowmesh_core.units import Digest

if TYPE_CHECKING:
    from flowmesh_core.accounting.ledger_lines import Line
    from flowmesh_core.costmodel.model import CostModel
    from flowmesh_core.fleet.memory_limits import MemoryLimits
    from flowmesh_core.placement.fair_share import FairShare


@dataclass(slots=True, eq=False)
class State:
    """Everything the machine knows. Changed in place by its modules; others only read it.

    Attributes:
        trusted: infos of signatures for actions that require trust, by signature and trust.
        shapes: signature specs of steps that are alike, by what makes them so.
        openings: by signature, what a worker needs to know to prewarm a host for it.
        step_lookups: step-level look-ups under way.
        ready: actions that wait for a placement, in order of readiness.
        unseen: those of them that the index does not have, or not as they are now.
        index: the ready actions as the scheduler sees them, and ``replicas``.
        replicas: replica attempts wanted for stragglers at the last snapshot.
        alternating: ready actions whose subscriptions have requirements that take turns.
        suspects: groups of suspects that run together, by their signature.
        failed_tries: of actions in the last day, for :mod:`failure_policy`; oldest first.
        orphaned_ends: after a restart, ends of attempts whose action is not known (yet), by key.
        orphaned_attempts: attempts that workers run though their action is not known (yet).
        orphaned_checkpoints: reported checkpoints of actions that are not known (yet).
        unnoted: actions whose newest checkpoint is not in the ledgers.
        resumed_bills: incarnation → what was billed for it before a restart.
        resumed_charges: attempt → what it was charged before a restart, until it is adopted.
        touched: runs whose steps must be settled before ``apply`` returns.
        shown: runs whose status has changed in this ``apply``.
        reasons_told_s: when waiting steps last got their reasons to wait.
        recovering_until_s: nothing is dispatched before.
        ticked_s: when time last advanced.
        observed_s: how long this machine has seen time advance; unlike the clock, it neither steps
            back nor counts the time in which the control plane stood still.
        late: whether a running attempt needed a replica when time last advanced.
        store_full: why a publication recently found no space, at ``store_full_s``; None where the
            store is not known to be full.
        cordoned: names of workers that must not get anything new; some may not be connected (yet).
        violations: protocol violations in this epoch, by pool and name of the worker.
        distrusted: workers that are cordoned for them, or for results that did not repeat.
        disbelieved: of the latter those whose results are discarded, also of attempts under way.
        reserved_pools: reserved pool → the namespaces that it takes actions of; None where pools
            are declared and have not been yet: then nothing is placed.
        limits: of namespaces, by the quotas of administrators.
        code_limits: namespace → attempts of user code that it may have at once.
        worker_limits: namespace → workers that may run its attempts at once.
        held: namespace → why none of its actions gets a new attempt.
        holds_checked_s: when ``held`` was last brought up to date.
        daily_spend: what runs paid in the last day, by namespace.
        reserved: predicted cost of attempts under way, by namespace; see ``Run``.
        single_tenant: whether a worker that runs one tenant's user code has been connected.
        tenant_drained_s: when such a worker last had to leave for another tenant.
        demand: recent arrivals by signature.
        attempts_made: how many attempts this epoch has made, of any action: a number that no two of
            them share, even when an action is wanted anew after it was forgotten.
        suspect_groups_made: how many groups of suspects, which their names count.
        evaluations_made: the number of the last evaluation of a condition in this epoch.
        revocations: those that are known, for runs that are submitted again later.
        service_spend: service → nano-dollars that its replicas have cost.
        service_charges: the latest days of it, by pool and price.
    """

    epoch: int
    catalog: Catalog
    settings: Settings
    model: "CostModel"
    fair: "FairShare"
    learned: "MemoryLimits"
    book: FabricAccount = field(default_factory=FabricAccount)
    figures: MachineCounters = field(default_factory=MachineCounters)
    runs: dict[str, Run] = field(default_factory=dict)
    actions: dict[ActionKey, Action] = field(default_factory=dict)
    attempts: dict[str, Attempt] = field(default_factory=dict)
    workers: dict[str, Worker] = field(default_factory=dict)
    signatures: dict[Digest, SignatureInfo] = field(default_factory=dict)
    trusted: dict[tuple[Digest, int], SignatureInfo] = field(default_factory=dict)
    shapes: dict[bytes, SignatureSpec] = field(default_factory=dict)
    openings: dict[Digest, PrewarmSpec] = field(default_factory=dict)
    step_lookups: dict[StepLookUp, PendingLookUp] = field(default_factory=dict)
    ready: dict[ActionKey, Action] = field(default_factory=dict)
    unseen: dict[ActionKey, Action] = field(default_factory=dict)
    index: ReadyIndex = field(default_factory=ReadyIndex)
    replicas: list[ReadyAction] = field(default_factory=list)
    alternating: dict[ActionKey, Action] = field(default_factory=dict)
    suspects: dict[Digest, SuspectGroup] = field(default_factory=dict)
    failed_tries: dict[ActionKey, FailedTries] = field(default_factory=dict)
    orphaned_ends: OrphanedEnds = field(default_factory=OrphanedEnds)
    orphaned_attempts: dict[ActionKey, OrphanedAttempt] = field(default_factory=dict)
    orphaned_checkpoints: dict[ActionKey, LatestCheckpoint] = field(default_factory=dict)
    unnoted: dict[ActionKey, Action] = field(default_factory=dict)
    resumed_bills: dict[str, int] = field(default_factory=dict)
    resumed_charges: dict[str, int] = field(default_factory=dict)
    touched: dict[str, None] = field(default_factory=dict)
    out: list[Command] = field(default_factory=list)
    shown: dict[str, None] = field(default_factory=dict)
    rejections: tuple[Rejection, ...] = ()
    reasons_told_s: float = float("-inf")
    recovering_until_s: float = 0.0
    store_full: Failure | None = None
    store_full_s: float = 0.0
    cordoned: frozenset[str] = frozenset()
    violations: dict[tuple[str, str], int] = field(default_factory=dict)
    distrusted: set[tuple[str, str]] = field(default_factory=set)
    disbelieved: set[tuple[str, str]] = field(default_factory=set)
    reserved_pools: Mapping[str, frozenset[str]] | None = field(default_factory=dict)
    limits: Mapping[str, NamespaceLimits] = field(default_factory=dict)
    code_limits: Mapping[str, int] = field(default_factory=dict)
    worker_limits: Mapping[str, int] = field(default_factory=dict)
    held: Mapping[str, Hold] = field(default_factory=dict)
    holds_checked_s: float = float("-inf")
    daily_spend: DailyTotals = field(default_factory=DailyTotals)
    reserved: Counter[str] = field(default_factory=Counter)
    single_tenant: bool = False
    tenant_drained_s: float = float("-inf")
    demand: DemandTracker = field(default_factory=DemandTracker)
    attempts_made: int = 0
    suspect_groups_made: int = 0
    prefix_salt: Callable[[str], str] = str
    evaluations_made: int = 0
    revocations: list[ContentRevoked] = field(default_factory=list)
    service_spend: Counter[str] = field(default_factory=Counter)
    service_charges: ServiceCharges = field(default_factory=ServiceCharges)
    ticked_s: float = 0.0
    observed_s: float = 0.0
    late: bool = False
    dirty: bool = False

    @property
    def separates_code(self) -> bool:
        """Whether ready actions of user code are separated by tenant."""
        return self.single_tenant or bool(self.code_limits)

    def pauses(self, run: Run) -> bool:
        """Whether a run gets no new attempts: it is suspended, or its namespace is held."""
        return run.suspended or run.plan.namespace in self.held

    def takes_work(self, worker: Worker) -> bool:
        """Whether a worker may get anything new."""
        return (
            not worker.draining
            and not worker.store_problem
            and worker.name not in self.cordoned
            and not (self.distrusted and (worker.shape.pool, worker.name) in self.distrusted)
        )

    def emit(self, command: Command) -> None:
        """Adds a command to those that ``apply`` returns."""
        self.out.append(command)

    def append(self, run: Run, line: "Line") -> None:
        """Adds a line to a run's ledger, and to what the run's status and the fabric's count."""
        run.lines.append(line)
        self.book.executed += ledger_counts.count(run, line)
        self.out.append(AppendLedgerLine(run.uid, line))

    def touch(self, run: Run, path: str) -> None:
        """Marks a step to be settled, and the run's status as changed."""
        run.todo.append(path)
        self.touched[run.uid] = None

    def changed(self, run: Run) -> None:
        """Marks the run's status as changed; it is published once an event however much changes."""
        self.shown[run.uid] = None

    def commands(self) -> list[Command]:
        """Returns the collected commands, the changed runs last, and forgets them."""
        out, self.out = self.out, []
        if self.shown:
            out.extend(map(RunChanged, self.shown))
            self.shown.clear()
        return out


def parse_attempt_id(attempt_id: str) -> ActionKey:
    """Returns the action that an attempt is of.

    Raises:
        InvariantError: the id was not made by :func:`attempt_id_of`.
    """
    parts = attempt_id.split("/")
    if len(parts) != 3:  # noqa: PLR2004 - scope, action, epoch and number
        raise InvariantError(
            f"attempt id {attempt_id!r} is not of the form scope/action/epoch-number"
        )
    return ActionKey(parts[0], Digest(parts[1]))


def attempt_id_of(key: ActionKey, epoch: int, number: int) -> str:
    """Returns a name that gives the action, and that no other attempt of any epoch has."""
    return f"{key.scope}/{key.action_id}/{epoch}-{number}"
