"""The machine's own objects: runs, step runs, actions, attempts.

Only the modules of this package change them, in place. Projections read them.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from flowmesh_api.v1.enums import ActionState, Phase, RejectionCause, StepState
from flowmesh_api.v1.why import HitLine, ScoredWorker
from flowmesh_core.accounting.ledger_lines import ConditionLine, Line
from flowmesh_core.catalog.contract import EngineContract
from flowmesh_core.errors import Failure, InvariantError
from flowmesh_core.fleet.ready import ReadyAction
from flowmesh_core.fleet.snapshot import SignatureInfo
from flowmesh_core.graph.evaluation_budget import EvaluationBudget
from flowmesh_core.graph.plan import Plan, StepPlan
from flowmesh_core.lifecycle_states import ENDED, TRANSITIONS
from flowmesh_core.machine.commands import LookUp
from flowmesh_core.machine.events import ActionKey
from flowmesh_core.machine.latest_checkpoint import LatestCheckpoint
from flowmesh_core.machine.specs import ActionSpec, PredictedDemand
from flowmesh_core.machine.suspect_groups import SuspectCase, SuspectGroup
from flowmesh_core.machine.terms import Question, Subscription, Terms
from flowmesh_core.machine.transitions import ACTION_TRANSITIONS
from flowmesh_core.protocol.messages import AttemptEnd, WorkerShape
from flowmesh_core.protocol.results import ActionResult, Artifact
from flowmesh_core.sharing.scopes import ScopePlan
from flowmesh_core.units import Digest

STORY_LENGTH = 200
LOG_LINES = 50
"""Lines of a step's log that its status shows, the last ones."""
_RUNNING = StepState.RUNNING
"""A local name: to look a member of an enum up takes 0.2 us in Python 3.11."""

Change = tuple[float, str, StepState, StepState, str]
"""When a step changed, its path, its states before and after, and the reason."""


class Subscriber(msgspec.Struct, frozen=True, gc=False):
    """A part of a step run that waits for an action: chunk ``part``, or -1 for the step level."""

    uid: str
    path: str
    part: int


class Hold(msgspec.Struct, frozen=True):
    """Why none of a namespace's actions gets a new attempt.

    Attributes:
        detail: one sentence for its users: what is used up, and what to do.
        ends_s: when it ends by itself; 0 where that is not known.
    """

    cause: RejectionCause
    detail: str
    ends_s: float = 0.0


class Attempt(msgspec.Struct, eq=False):
    """One try of an action on one worker.

    Attributes:
        phase: empty until the worker has reported on it; ``running`` once it has ended.
        starts_s: when it was predicted to begin, after fetching and loading.
        loading: at its last report its host had not loaded yet.
        units: work reported so far; ``metered_units`` of it already used to split cost.
        charged_nanousd: its cost so far, ``load_nanousd`` of it for loading.
        unpriced_nanousd: its part of the time of a worker without a price, for fair shares.
        memory_mib: what its host reserves.
        memory_shared: another attempt beside it ran out of memory while this one was assigned.
        reserved: part of each run's budget that is reserved for it.
        placed: why it went to its worker; the attempts of a batch share one object.
        unobserved_nanousd: its part of what its worker cost while the control plane stood still;
            charged at its end as far as the worker reports that it worked.
        adopted: begun under an earlier epoch; its cost in between is charged at its end.
        info: the effective requirement that it was placed by; its host has that signature.
        shape: of its worker.
        begun_s: when it began to run, on the clock of ``State.observed_s``.
        times_out_s: when the first timeout of a subscription may have passed, on the same clock.
        payers: runs that pay for it after the last subscriber has left; ``payer_steps`` are theirs.
        end: the worker's report, while the publication is under way.
        store_full_s: when its result began to wait for space in a full store; 0 where it does not.
        logged: lines of its log came while it ran, so its end repeats them.
        resumed: digest of the checkpoint that it began at; empty where it began at the start.
        resumed_trust: of that checkpoint; None where it began at the start.
        busy_from_s: its worker's busy seconds when it was assigned (``Worker.busy_s``).
        pool: of its worker, which may have left when the attempt ends.
        alone: assigned to a host of its own.
        case: what its action was suspected of when it was assigned; None where of nothing.
        next_group: the suspects that its action runs with from now on, if its host has crashed or
            its worker is lost; set when the first attempt beside it fails so.
        code_tenant: the namespace whose user code it runs; empty where it runs none.
        tenant: the namespace that alone wanted its action when it was assigned; empty where several
            did.
    """

    attempt_id: str
    action: "Action"
    worker: str
    incarnation: str
    assigned_s: float
    predicted_s: float
    reserve_nanousd: int
    info: SignatureInfo
    shape: WorkerShape
    memory_mib: int = 0
    memory_shared: bool = False
    deadline_s: float = float("inf")
    reserved: dict[str, int] = {}
    phase: str = ""
    loading: bool = False
    starts_s: float = 0.0
    running_s: float = 0.0
    begun_s: float = 0.0
    times_out_s: float = float("inf")
    units: int = 0
    metered_units: int = 0
    done: float = 0.0
    total: float = 0.0
    unit: str = ""
    charged_nanousd: int = 0
    load_nanousd: int = 0
    unpriced_nanousd: int = 0
    unobserved_nanousd: int = 0
    placed: tuple[ScoredWorker, ...] = ()
    adopted: bool = False
    payers: tuple[str, ...] = ()
    payer_steps: dict[str, tuple[str, int]] = {}
    end: AttemptEnd | None = None
    store_full_s: float = 0.0
    cancelled: bool = False
    logged: bool = False
    resumed: str = ""
    resumed_trust: int | None = None
    busy_from_s: float = 0.0
    pool: str = ""
    alone: bool = False
    case: SuspectCase | None = None
    next_group: SuspectGroup | None = None
    tokens_rate: float = 0.0
    rate_mark: tuple[float, int] = (0.0, 0)
    code_tenant: str = ""
    tenant: str = ""


class StepLookUp(msgspec.Struct, frozen=True, gc=False):
    """A step-level look-up: of which result, and what it asks."""

    key: ActionKey
    question: Question


class PendingLookUp(msgspec.Struct, eq=False):
    """A step-level look-up whose answer is awaited.

    Attributes:
        command: as it was first emitted.
        namespaces: those that it was emitted for, each once.
        steps: (uid, step path) of those that wait: at least one.
    """

    command: LookUp
    namespaces: tuple[str, ...]
    steps: dict[tuple[str, str], None] = {}

    def asked_by(self, run: "Run") -> LookUp | None:
        """Returns a further look-up for a run's namespace, or None where that one has one already.

        Look-ups take turns by namespace, so the first namespace's turn may come late.
        """
        namespace = run.plan.namespace
        if namespace in self.namespaces:
            return None
        self.namespaces += (namespace,)
        return msgspec.structs.replace(self.command, uid=run.uid)


class Action(msgspec.Struct, eq=False):
    """An action in flight.

    Attributes:
        info: the effective requirement of its subscriptions (``effective_requirement``);
            ``info_since_s`` is since when, and ``options`` has all that take turns.
        suspects: the group that it is in while it is suspected of having ended a host or a worker.
        subscribers: in order of subscription, each with its terms.
        attempts: those assigned to a worker, by id; two where there is a replica attempt.
        read_scopes: where its inputs may lie: those of the subscription that it was made from.
        attempt_count: attempts started so far.
        lost_attempt: the attempt of the last of its ``losses``; ``lost_for`` are those that it
            counted against.
        reported: attempts whose end was reported and did not complete it; none is adopted again.
        replace: whether its publication replaces a result that lost a blob.
        generation: of the result that it will publish.
        view: its entry in the index of ready actions; None while it is not in there.
        checkpoint: where its next attempt begins.
        noted_s: when a checkpoint was last written to the ledgers.
        missed_from_s: results created earlier were not looked for; 0 where any would have done.
        missed_trust: neither were results of pools of less trust.
        questions: pending look-ups, each with the namespaces that it was emitted for.
    """

    key: ActionKey
    spec: ActionSpec
    info: SignatureInfo
    read_scopes: tuple[str, ...]
    state: ActionState = ActionState.LOOKING_UP
    subscribers: dict[Subscriber, Subscription] = {}
    options: tuple[SignatureInfo, ...] = ()
    info_since_s: float = 0.0
    attempts: dict[str, Attempt] = {}
    attempt_count: int = 0
    losses: int = 0
    lost_attempt: str = ""
    lost_for: tuple[Subscriber, ...] = ()
    reported: tuple[str, ...] = ()
    failures: dict[str, int] = {}
    repairs: int = 0
    isolate: bool = False
    suspects: SuspectGroup | None = None
    avoid_workers: frozenset[str] = frozenset()
    not_before_s: float = 0.0
    ready_s: float = 0.0
    replace: bool = False
    generation: int = 1
    last_failure: Failure | None = None
    publishing: Attempt | None = None
    view: ReadyAction | None = None
    checkpoint: LatestCheckpoint | None = None
    noted_s: float = float("-inf")
    missed_from_s: float = 0.0
    missed_trust: int = 0
    questions: dict[Question, tuple[str, ...]] = {}

    def move(self, state: ActionState) -> None:
        """Changes its state as the transition table allows.

        Raises:
            InvariantError: the table has no such transition.
        """
        if (self.state, state) not in ACTION_TRANSITIONS:
            attempts = ", ".join(f"{a.attempt_id} {a.phase}" for a in self.attempts.values())
            raise InvariantError(
                f"action {self.key.action_id} in {self.key.scope}: {self.state} → {state} is not "
                f"in the table; attempts: {attempts or 'none'}; last failure: {self.last_failure}"
            )
        self.state = state

    @property
    def shown(self) -> SignatureInfo:
        """What the scheduler places it by: its own requirement, or that of its suspects."""
        group = self.suspects
        return self.info if group is None or group.alone else group.info

    def first_run(self) -> str:
        """Returns the uid of the run that subscribed first; empty where none does."""
        return next(iter(self.subscribers)).uid if self.subscribers else ""

    def runs(self) -> list[str]:
        """Returns the uids of the subscribed runs, in order of subscription."""
        if len(self.subscribers) == 1:
            return [next(iter(self.subscribers)).uid]
        return list(dict.fromkeys(s.uid for s in self.subscribers))

    def accepts_wholly(self, trust: int, made_at: int = 1 << 30) -> bool:
        """Whether work of this trust counts for all that wait for a result.

        Args:
            trust: of the work.
            made_at: leaves out those that do not accept a result of this trust either.
        """
        return all(
            own.terms.accepts(trust) or not own.terms.accepts(made_at)
            for own in self.subscribers.values()
        )

    def accepting_runs(self, trust: int) -> list[str]:
        """Returns the runs that accept a result of a pool of this trust, and so pay for it."""
        accepting = [s.uid for s, own in self.subscribers.items() if own.terms.accepts(trust)]
        return list(dict.fromkeys(accepting)) if len(accepting) > 1 else accepting


class FailedTries(msgspec.Struct, eq=False):
    """How often an action has failed since a time, for all its subscribers together."""

    since_s: float
    count: int = 0


class StepPart(msgspec.Struct, eq=False, gc=False):
    """One action's worth of a step: the whole step, or a chunk of it.

    Attributes:
        inputs: artifacts by port for this part.
        key: the action that it waits for; after a hit, where that was found.
        result: None until it is published.
    """

    inputs: dict[str, Artifact]
    key: ActionKey | None = None
    result: ActionResult | None = None


class StepRun(msgspec.Struct, eq=False, gc=False):
    """A step of a run; nothing that it has leads back to it, so the collector need not look.

    Attributes:
        contract: the pinned contract.
        parents: paths of the steps that must end before it can begin; ``waiting`` of them have not.
        inputs: artifacts by port, once known (without the row port while that still grows).
        parts: by number; ``total`` is how many there are, None while the row port still grows.
        fresh: parts published since the steps that stream from this one last took some.
        streams: the step whose parts feed this one's row port as they come; empty otherwise.
        evaluation: number of the evaluation of its condition that is under way; 0 where none is.
        holds: whether its condition holds; None until it is evaluated.
        lookup: the step-level look-up, under way or answered.
        terms: of its subscriptions; None until they are computed from its inputs.
        step_level: its only part is a step-level result.
        skip_lookup: the step-level result lost a blob, so its parts are looked up one by one.
        repairs: by part, how often it was reproduced for a lost blob.
        outputs: by port; None for a skipped step's.
        model: see ``base_model``; None until it is computed.
        last_placement: the placement that the ledger last explained; ``placements_logged`` counts
            the explanations.
        foreseen: its predicted demand, once its models are known; see ``prewarm``.
    """

    plan: StepPlan
    contract: EngineContract
    parents: tuple[str, ...] = ()
    state: StepState = StepState.PENDING
    waiting: int = 0
    inputs: dict[str, Artifact] = {}
    fresh: tuple[int, ...] = ()
    streams: str = ""
    parts: dict[int, StepPart] = {}
    total: int | None = None
    pending_parts: int = 0
    begun: bool = False
    evaluation: int = 0
    holds: bool | None = None
    lookup: StepLookUp | None = None
    terms: Terms | None = None
    skip_lookup: bool = False
    repairs: dict[int, int] = {}
    step_level: bool = False
    outputs: dict[str, Artifact | None] = {}
    reason: str = ""
    failure: Failure | None = None
    wait_reason: str = ""
    wait_detail: str = ""
    hits: int = 0
    in_flight: int = 0
    executed: int = 0
    attempts: int = 0
    paid_nanousd: int = 0
    saved_nanousd: int = 0
    joules: float = 0.0
    tokens: int = 0
    shared_with: dict[str, None] = {}
    last_placement: tuple[ScoredWorker, ...] = ()
    placements_logged: int = 0
    log: tuple[str, ...] = ()
    started_s: float = 0.0
    ended_s: float = 0.0
    model: str | None = None
    foreseen: PredictedDemand | None = None

    @property
    def ended(self) -> bool:
        """Whether it is in a final state."""
        return self.state in ENDED

    def add_log(self, lines: Iterable[str]) -> None:
        """Adds lines to its log, of which the last are kept."""
        self.log = (*self.log, *lines)[-LOG_LINES:]


class PendingEvaluation(msgspec.Struct, frozen=True):
    """An evaluation of a condition that is under way.

    Attributes:
        step: its path.
        digest: of the condition and of the artifacts that it reads.
        granted: steps that are reserved for it.
    """

    step: str
    digest: Digest
    granted: int


@dataclass(slots=True, eq=False)
class Run:
    """One execution of a workflow.

    Attributes:
        inline: contents of small blobs of its artifacts.
        children: step path → paths of the steps that wait for it.
        remaining_s: step path → length of the longest path from it to the end.
        open_steps: steps that have not ended.
        todo: steps to settle before ``apply`` returns.
        unsettled: attempts that this run will pay for when they end.
        reserved_nanousd: predicted cost of attempts under way.
        checking: its outputs' blobs are being checked.
        executions: actions that its ledger says it has executed, each with its step and chunk.
        restored_hits: hits that a restored ledger has booked, by step, chunk and action.
        checkpoints: from a restored ledger, of actions that are not wanted again yet.
        quarantine_salts: signature classes that were in quarantine when it was accepted.
        has_executed: some action of it had no published result and had to run.
        conditions: what the evaluation of its conditions may take.
        evaluations: those under way, by number.
        unevaluated: steps whose conditions are to be evaluated next, in order.
        verdicts: results of conditions, by step and by the digest of what was evaluated.
    """

    uid: str
    plan: Plan
    created_s: float
    scopes: ScopePlan
    artifacts: dict[str, Artifact]
    inline: dict[Digest, bytes]
    steps: dict[str, StepRun]
    children: dict[str, list[str]]
    remaining_s: Mapping[str, float] = field(default_factory=dict)
    phase: Phase = Phase.RUNNING
    open_steps: int = 0
    priority: int = 0
    budget_nanousd: int = 0
    deadline_s: float = 0.0
    suspended: bool = False
    todo: deque[str] = field(default_factory=deque)
    unsettled: dict[str, None] = field(default_factory=dict)
    reserved_nanousd: int = 0
    paid_nanousd: int = 0
    saved_nanousd: int = 0
    joules: float = 0.0
    joules_estimated: bool = False
    lines: list[Line] = field(default_factory=list)
    executions: dict[Digest, tuple[str, int]] = field(default_factory=dict)
    restored_hits: dict[tuple[str, int, Digest], HitLine] = field(default_factory=dict)
    checkpoints: dict[ActionKey, LatestCheckpoint] = field(default_factory=dict)
    quarantine_salts: Mapping[Digest, int] = field(default_factory=dict)
    cancel_reason: str = ""
    failed_step: str = ""
    failure: Failure | None = None
    checking: bool = False
    checked: bool = False
    has_executed: bool = False
    conditions: EvaluationBudget = field(default_factory=lambda: EvaluationBudget.of(0))
    evaluations: dict[int, PendingEvaluation] = field(default_factory=dict)
    unevaluated: dict[str, None] = field(default_factory=dict)
    verdicts: dict[tuple[str, Digest], ConditionLine] = field(default_factory=dict)
    finishing: bool = False
    ended_s: float = 0.0
    story: deque[Change] = field(default_factory=lambda: deque(maxlen=STORY_LENGTH))

    @property
    def min_trust(self) -> int:
        """The least trust of the pools that may make its results."""
        return max(self.scopes.min_trust, self.plan.min_trust)

    @property
    def deadline_at_s(self) -> float:
        """The absolute time of the deadline; infinity where there is none."""
        return self.created_s + self.deadline_s if self.deadline_s else float("inf")

    def move(self, step: StepRun, state: StepState, now_s: float, why: str = "") -> None:
        """Changes a step's state as the transition table allows.

        Raises:
            InvariantError: the table has no such transition; the message lists the run's
                transitions.
        """
        if (step.state, state) not in TRANSITIONS:
            story = "\n".join(
                f"{t:.3f} {p}: {a} → {b} {w}".rstrip() for t, p, a, b, w in self.story
            )
            raise InvariantError(
                f"run {self.uid}, step {step.plan.path}: {step.state} → {state} ({why}) is not in "
                f"the table; the story so far:\n{story}"
            )
        self.story.append((now_s, step.plan.path, step.state, state, why))
        if state in ENDED:
            self.open_steps -= 1
            step.ended_s = now_s
        elif step.state in ENDED:
            self.open_steps += 1
            step.ended_s = 0.0
        if state is _RUNNING and not step.started_s:
            step.started_s = now_s
        step.state = state
