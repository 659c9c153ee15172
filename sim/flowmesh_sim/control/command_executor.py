"""Executes the machine's commands in virtual time, as the control plane's executor does.

Requests to the store take time and are retried while it is unavailable, with the backoff of the
control plane's task pool. A write that is under way when its control plane crashes still succeeds.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from flowmesh_control.loop.pending_puts import PendingPut, PendingPuts
from flowmesh_control.loop.task_pool import FIRST_RETRY_S, LAST_RETRY_S
from flowmesh_core.dataset.manifest import encode_manifest
from flowmesh_core.graph.conditions import verdict_of
from flowmesh_core.machine.commands import (
    Acknowledge,
    AppendLedgerLine,
    Assign,
    AttemptSettled,
    CancelAttempt,
    CheckBlobs,
    Command,
    CompareContent,
    ConfirmAttempts,
    DeleteCorruptBlobs,
    DrainWorker,
    EvaluateCondition,
    FinalizeRun,
    LookUp,
    Prewarm,
    Publish,
    PutBlob,
    PutManifest,
    RunChanged,
    Serve,
)
from flowmesh_core.machine.events import (
    ActionKey,
    BlobsChecked,
    ConditionEvaluated,
    Event,
    LookedUp,
    Published,
    RunFinalized,
)
from flowmesh_sim.control.gateway import SimGateway
from flowmesh_sim.kernel.environment import Environment, RandomStreams
from flowmesh_sim.models.store import SimStore

if TYPE_CHECKING:
    from flowmesh_core.protocol.results import ActionResult


class ExecutorOwner(Protocol):
    """The control plane that owns an executor."""

    alive: bool

    def now_s(self) -> float:
        """Returns its wall clock."""
        ...

    def post(self, event: Event) -> None:
        """Queues an event."""
        ...

    def finish(self, uid: str) -> None:
        """Makes a run's end durable."""
        ...

    def assigned(self, command: Assign) -> None:
        """Records an assignment."""
        ...

    def wrote(self, key: ActionKey, result: "ActionResult") -> None:
        """Records a publication that won."""
        ...


class SimCommandExecutor:
    """The executor of one control plane."""

    def __init__(
        self,
        engine: Environment,
        store: SimStore,
        gateway: SimGateway,
        home: ExecutorOwner,
        *,
        append: Callable[[str, Any], None],
        times: Any,
        dice: RandomStreams,
    ) -> None:
        """Creates an executor.

        Args:
            engine: the event queue.
            store: the simulated store.
            gateway: to the workers.
            home: the control plane.
            append: adds a line to a run's ledger.
            times: durations of requests.
            dice: randomness of faults.
        """
        self._engine = engine
        self._store = store
        self._owner = home
        self._times = times
        self._rng = dice.stream("store")
        self._puts = PendingPuts()
        self._table: Mapping[type, Callable[[Any], None]] = {
            LookUp: partial(self._request, self._look_up, times.look_up_s),
            Publish: partial(self._request, self._publish, times.publish_s),
            PutManifest: self._put_later,
            PutBlob: self._put_later,
            CheckBlobs: partial(self._request, self._check_blobs, times.look_up_s),
            DeleteCorruptBlobs: partial(self._request, self._discard, times.look_up_s),
            EvaluateCondition: self._evaluate,
            FinalizeRun: self._finish_later,
            Assign: self._assign,
            CancelAttempt: lambda c: gateway.cancel(c.worker, c.attempt_id),
            Prewarm: lambda c: gateway.prewarm(c.worker, c.openings),
            Serve: lambda c: gateway.serve(c.worker, c.replicas, c.routers),
            Acknowledge: lambda c: gateway.acknowledge(c.worker, c.attempt_id),
            ConfirmAttempts: lambda c: gateway.confirm_attempts(c.worker, c.keep),
            DrainWorker: self._drain_worker,
            AppendLedgerLine: lambda c: append(c.uid, c.line),
            RunChanged: lambda c: None,  # status projections are not simulated
            AttemptSettled: lambda c: None,
            CompareContent: lambda c: None,  # simulated content is what its identity says
        }
        self._gateway = gateway

    def _drain_worker(self, c: DrainWorker) -> None:
        self._gateway.drain(c.worker)

    def execute(self, commands: Sequence[Command]) -> None:
        """Starts the commands; their results are posted as events."""
        for command in commands:
            self._table[type(command)](command)

    def flush(self) -> None:
        """Sends the gathered messages of each worker."""
        self._gateway.flush()

    def refused(self) -> bool:
        """Whether the store refuses a request now, at random."""
        return self._store.refuses > 0.0 and self._rng.random() < self._store.refuses

    def _request(
        self, job: Callable[[Any], bool], took_s: float, command: Any, wait_s: float = FIRST_RETRY_S
    ) -> None:
        self._engine.after(took_s + self._store.slow_s, self._arrived, job, took_s, command, wait_s)

    def _arrived(
        self, job: Callable[[Any], bool], took_s: float, command: Any, wait_s: float
    ) -> None:
        if not self._store.down and not self.refused() and job(command):
            return
        if self._owner.alive:
            longer_s = min(2 * wait_s, LAST_RETRY_S)
            self._engine.after(wait_s, self._request, job, took_s, command, longer_s)

    # -- requests: each returns whether it is done -----------------------------------------------

    def _look_up(self, c: LookUp) -> bool:
        if self._owner.alive:
            found = self._store.look_up(
                c.key, c.scopes, c.not_before_s, self._owner.now_s(), c.min_trust
            )
            self._owner.post(LookedUp(c.key, found, c.scopes, c.not_before_s, c.min_trust))
        return True

    def _publish(self, c: Publish) -> bool:
        if self._store.races and self._rng.random() < self._store.races:
            self._rival(c)
        now_s = self._owner.now_s()
        stands, won = self._store.publish(
            c.key,
            c.result,
            replace=c.replace,
            now_s=now_s,
            not_before_s=c.not_before_s,
            min_trust=c.min_trust,
        )
        if won:
            self._owner.wrote(c.key, stands)
        ours = stands.provenance.attempt_id == c.result.provenance.attempt_id
        if self.refused():
            return False  # written, but the answer is lost: the retry finds its own result
        if self._owner.alive:
            self._owner.post(Published(c.key, stands, adopted=not ours))
        return True

    def _rival(self, c: Publish) -> None:
        """Publishes another writer's result of the action first, such as a former leader's."""
        provenance = msgspec.structs.replace(c.result.provenance, attempt_id="a rival's")
        result = msgspec.structs.replace(c.result, provenance=provenance, run_uid="")
        now_s = self._owner.now_s()
        stands, won = self._store.publish(c.key, result, replace=c.replace, now_s=now_s)
        if won:
            self._owner.wrote(c.key, stands)

    def _discard(self, c: DeleteCorruptBlobs) -> bool:
        self._store.discard(c.digests)
        return True

    def _put_later(self, c: PutManifest | PutBlob) -> None:
        pending = self._puts.begin(c.uid, (c.scope, c.digest))
        self._request(self._put, self._times.publish_s, (c, pending))

    def _put(self, given: tuple[PutManifest | PutBlob, PendingPut]) -> bool:
        c, pending = given
        size = len(c.data) if isinstance(c, PutBlob) else len(encode_manifest(c.manifest))
        self._store.discard([c.digest])
        self._store.put_blob(c.digest, size)
        self._puts.end(pending)
        return True

    def _check_blobs(self, c: CheckBlobs) -> bool:
        if self._owner.alive:
            digests = frozenset().union(*c.digests.values())
            places = itertools.product({*c.digests, *c.read_scopes}, digests)
            wanted = digests - self._puts.join(c.uid, frozenset(places))
            self._owner.post(BlobsChecked(c.uid, frozenset(self._store.missing(wanted))))
        return True

    def _evaluate(self, c: EvaluateCondition) -> None:
        self._owner.post(ConditionEvaluated(c.uid, c.number, verdict_of(c.query)))

    def _finish_later(self, c: FinalizeRun) -> None:
        self._puts.after(c.uid, lambda: self._request(self._finish, self._times.final_s, c))

    def _finish(self, c: FinalizeRun) -> bool:
        if self._owner.alive:
            self._owner.finish(c.uid)
            self._owner.post(RunFinalized(c.uid))
        return True

    def _assign(self, c: Assign) -> None:
        self._owner.assigned(c)
        self._gateway.assign(c.worker, c.assignment, c.generation, c.read_scopes)
