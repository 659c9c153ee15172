"""Reconciles FlowMeshWorkflow objects with their runs: submits, amends, cancels, expires.

Level-triggered: whatever triggered it, the action follows from the object in the informer cache and
the run's current state (``reconcile_decision``). No event is needed to be correct.
"""

import logging
import time
from dataclasses import dataclass
from datetime import UTC, datetime

from flowmesh_control.errors import (
    NotFoundError,
    PlanRefusedError,
    QuotaExceededError,
    UnplaceableError,
)
from flowmesh_control.records.epochs import SupersededError
from flowmesh_control.runs.admission import Submission
from flowmesh_core.errors import (
    DamagedRecordError,
    FlowMeshError,
    InvalidReferenceError,
    InvariantError,
    SpecError,
    StoreFullError,
    StoreUnavailableError,
)
from flowmesh_core.status.conditions import WorkflowReason
from flowmesh_operator.kube.client import CONFLICT, NOT_FOUND, ApiError, KubeClient
from flowmesh_operator.kube.conditions import ConditionUpdate
from flowmesh_operator.kube.informer_cache import ENDED, InformerCache, Object
from flowmesh_operator.kube.kinds import WORKFLOWS
from flowmesh_operator.kube.lease import LeadershipLostError
from flowmesh_operator.kube.work_queue import WorkQueue
from flowmesh_operator.ports import (
    AvailableQuota,
    CachePolicies,
    Epoch,
    RunChanges,
    RunReader,
    RunWriter,
)
from flowmesh_operator.tasks import first
from flowmesh_operator.workflows.conditions import (
    not_accepted_yet,
    refused,
)
from flowmesh_operator.workflows.config_maps import ConfigMapInputs, UnreadableError
from flowmesh_operator.workflows.deletion_detector import DELETED, DeletionDetector
from flowmesh_operator.workflows.quota_waits import QuotaWaits
from flowmesh_operator.workflows.reconcile_decision import (
    ReconcileDecision,
    amendments,
    decide,
)
from flowmesh_operator.workflows.status_writer import StatusWriter
from flowmesh_operator.workflows.submission import submission, words

log = logging.getLogger("flowmesh.operator")

RECONCILE_WORKERS = 8
WRITERS = 8
RETRY_S = 1.0
LONGEST_RETRY_S = 30.0


@dataclass(frozen=True, slots=True)
class _Backoff:
    """The backoff of a submission that failed: its length, and when it ends."""

    wait_s: float
    until_s: float


class WorkflowController:
    """Submits, amends, cancels and expires workflows, and requests their status updates."""

    def __init__(
        self,
        api: KubeClient,
        mirror: InformerCache,
        *,
        runs: RunReader,
        commands: RunWriter,
        changes: RunChanges,
        policies: CachePolicies,
        quota: AvailableQuota,
        epoch: Epoch,
        writer: StatusWriter,
        config_maps: ConfigMapInputs,
    ) -> None:
        """Starts with an empty queue.

        Args:
            api: the leader's client.
            mirror: the informer cache.
            runs: reads runs.
            commands: submits, amends and cancels runs.
            changes: names the runs that changed.
            policies: give the scope of ConfigMaps' content.
            quota: says whether a namespace may have a further run.
            epoch: the leader's epoch.
            writer: writes the statuses; this controller runs it.
            config_maps: reads and uploads inputs.
        """
        self._api = api
        self._mirror = mirror
        self._runs = runs
        self._commands = commands
        self._changes = changes
        self._policies = policies
        self._quota = quota
        self._epoch = epoch
        self._writer = writer
        self._config_maps = config_maps
        self._queue = WorkQueue()
        self._backoffs: dict[str, _Backoff] = {}
        self._quota_waits = QuotaWaits(quota, self._queue.add)

    async def run(self) -> None:
        """Reconciles until cancelled.

        Raises:
            LeadershipLostError: the fence stopped a write.
            ApiError: the API server does not answer, or the operator lacks a right.
        """
        deletions = DeletionDetector(
            self._api, self._mirror, live=self._runs.live_uids, absent=self._queue.add
        )
        await first(
            deletions.run(),
            self._queue.feed(self._mirror.changes("workflows")),
            self._follow_runs(),
            self._quota_waits.run(),
            *(self._queue.serve(self._reconcile) for _ in range(RECONCILE_WORKERS)),
            *(self._writer.serve() for _ in range(WRITERS)),
            self._writer.serve_large(),
        )

    async def _follow_runs(self) -> None:
        async for uid in self._changes.all():
            self._writer.follow(uid)

    async def _reconcile(self, uid: str) -> None:
        obj = self._mirror.workflows.get(uid)
        if obj is None and (self._mirror.exists(uid) or not self._mirror.complete.is_set()):
            return  # known by name only: the watch, or the first list, delivers the object
        live = uid in self._runs.live_uids()
        try:
            await self._do(decide(obj, live=live, epoch=self._epoch.number), uid, obj)
        except (StoreUnavailableError, StoreFullError) as e:
            self._retry_later(uid, obj, WorkflowReason.UNAVAILABLE, e)
        except DamagedRecordError as e:  # its message has the record's key and the remedy
            self._retry_later(uid, obj, WorkflowReason.UNAVAILABLE, e)
        except UnreadableError as e:
            self._retry_later(uid, obj, WorkflowReason.UNREADABLE, e)
        except UnplaceableError as e:  # a pool that can run it may be applied later
            self._retry_later(uid, obj, WorkflowReason.UNPLACEABLE, e)
        except ApiError as e:
            if e.status not in (NOT_FOUND, CONFLICT):
                log.warning("workflow %s is reconciled again: %s", uid, e, extra={"run": uid})
                self._queue.add_after(uid, RETRY_S)
        except (LeadershipLostError, SupersededError, InvariantError):
            raise
        except Exception as e:  # a bug that one workflow triggers must not stop the others
            log.exception("workflow %s", uid)
            internal = FlowMeshError(
                f"internal error ({type(e).__name__}: {e})",
                remedy="please report it with the operator's log; it will be retried",
            )
            self._retry_later(uid, obj, WorkflowReason.UNAVAILABLE, internal)

    async def _do(self, what: ReconcileDecision, uid: str, obj: Object | None) -> None:
        if obj is None:
            self._writer.forget(uid)
            self._backoffs.pop(uid, None)
        if what is not ReconcileDecision.SUBMIT:
            self._quota_waits.discard(uid)
        match what:
            case ReconcileDecision.CANCEL:
                await self._commands.cancel(uid, DELETED)
            case ReconcileDecision.SUBMIT if obj is not None:
                await self._submit(uid, obj)
            case ReconcileDecision.AMEND if obj is not None:
                await self._amend(uid, obj)
            case ReconcileDecision.PUBLISH_STATUS if obj is not None:
                self._writer.set_generation(uid, obj["metadata"]["generation"])
            case _ if obj is not None:
                await self._expire(uid, obj)

    async def _amend(self, uid: str, obj: Object) -> None:
        terms = self._runs.terms(uid)
        if terms is not None and (changes := amendments(obj["spec"], terms)):
            await self._commands.amend(uid, changes)
        observed = (obj.get("status") or {}).get("observedGeneration", 0)
        # A run that waits for an engine cannot be amended yet; the next leader tries again.
        self._writer.set_generation(
            uid, obj["metadata"]["generation"] if terms is not None else observed
        )

    async def _submit(self, uid: str, obj: Object) -> None:
        generation = obj["metadata"]["generation"]
        backoff = self._backoffs.get(uid)
        if backoff is not None and time.monotonic() < backoff.until_s:
            self._queue.add_after(uid, backoff.until_s - time.monotonic())
            return
        try:
            await self._runs.status(uid)
        except NotFoundError:
            pass
        else:
            self._writer.set_generation(uid, generation)
            return
        try:
            said = await self._accept(uid, obj)
        except QuotaExceededError as e:
            self._wait_for_quota(uid, obj, e)
            return
        self._quota_waits.discard(uid)
        self._writer.set_generation(uid, generation, said)
        if said is None:
            self._backoffs.pop(uid, None)
            self._queue.add(uid)  # the object may have been deleted during the submission

    async def _accept(self, uid: str, obj: Object) -> list[ConditionUpdate] | None:
        """Submits a workflow; returns the conditions of one that is refused, else None."""
        meta = obj["metadata"]
        self._quota.check(meta["namespace"])  # before the work of reading and compiling it
        if obj.get("condensed"):
            obj = await self._api.get(*WORKFLOWS, meta["namespace"], meta["name"])
            if obj["metadata"]["uid"] != uid:
                raise ApiError("another object has its name", status=CONFLICT, where=uid)
        try:
            await self._commands.submit(await self._submission(obj))
        except SpecError as e:
            return refused(WorkflowReason.INVALID, words(e))
        except InvalidReferenceError as e:
            return refused(WorkflowReason.INVALID, str(e))
        except UnplaceableError:
            raise
        except PlanRefusedError as e:
            return refused(WorkflowReason.UNMEETABLE, e.message)
        return None

    def _wait_for_quota(self, uid: str, obj: Object, error: QuotaExceededError) -> None:
        """Suspends a workflow until there is room for it, or refuses one that is too large."""
        meta = obj["metadata"]
        if error.can_pass:
            self._quota_waits.add(uid, meta["namespace"])
            said = not_accepted_yet(WorkflowReason.QUOTA_EXCEEDED, str(error))
        else:
            self._quota_waits.discard(uid)
            said = refused(WorkflowReason.QUOTA_EXCEEDED, str(error))
        self._writer.set_generation(uid, meta["generation"], said)

    async def _submission(self, obj: Object) -> Submission:
        namespace = obj["metadata"]["namespace"]
        labels = self._mirror.namespaces.get(namespace, {})
        scope = self._policies.scopes(namespace, labels).private
        uploads = await self._config_maps.store(obj, scope)
        return submission(obj, labels, uploads)

    def _retry_later(
        self, uid: str, obj: Object | None, reason: WorkflowReason, error: FlowMeshError
    ) -> None:
        log.warning("workflow %s waits: %s", uid, error, extra={"run": uid})
        self._quota_waits.discard(uid)
        if obj is not None and not (obj.get("status") or {}).get("startedAt"):
            self._writer.set_generation(
                uid, obj["metadata"]["generation"], not_accepted_yet(reason, str(error))
            )
        known = self._backoffs.get(uid)
        wait_s = min(2 * known.wait_s, LONGEST_RETRY_S) if known else RETRY_S
        self._backoffs[uid] = _Backoff(wait_s, time.monotonic() + wait_s)
        self._queue.add_after(uid, wait_s)

    async def _expire(self, uid: str, obj: Object) -> None:
        """Deletes an ended workflow after ``ttlSecondsAfterFinished``."""
        status, meta = obj.get("status") or {}, obj["metadata"]
        ttl_s, ended = (obj.get("spec") or {}).get("ttlSecondsAfterFinished"), status.get("endedAt")
        if ttl_s is None or not ended or status.get("phase") not in ENDED:
            return
        remaining_s = (
            datetime.fromisoformat(ended).timestamp() + ttl_s - datetime.now(UTC).timestamp()
        )
        if remaining_s > 0:
            self._queue.add_after(uid, remaining_s)
            return
        await self._api.delete(*WORKFLOWS, meta["namespace"], meta["name"], uid=uid)
