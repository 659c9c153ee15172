"""Writes statuses: at most one a second a workflow, none where nothing changed.

With each write the API server checks the whole object again, its spec too: seconds of its processor
for one of ten thousand steps. Such objects are written one at a time, for a quarter of the time at
most, and each of them the more seldom the longer it takes; the others do not wait for them, nor
does the Lease.
"""

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import Any

from flowmesh_api.v1.runs import RunStatus
from flowmesh_control.errors import NotFoundError
from flowmesh_core.errors import InvariantError, StoreFullError, StoreUnavailableError
from flowmesh_core.status.overflow import overflows
from flowmesh_operator.kube.client import CONFLICT, NOT_FOUND, ApiError, KubeClient
from flowmesh_operator.kube.informer_cache import ENDED, InformerCache, Object
from flowmesh_operator.kube.kinds import WORKFLOWS
from flowmesh_operator.kube.lease import LeadershipLostError
from flowmesh_operator.kube.work_queue import WorkQueue
from flowmesh_operator.ports import Epoch, RunReader, StatusStore
from flowmesh_operator.workflows import status_projection
from flowmesh_operator.workflows.conditions import WorkflowConditionUpdate
from flowmesh_operator.workflows.kubernetes_events import announce_end
from flowmesh_operator.workflows.status_projection import Status, WorkflowStatusContext

log = logging.getLogger("flowmesh.operator")

GAP_S = 1.0
"""Between two writes of one workflow's status."""
MINOR_GAP_S = 10.0
"""The same, where only figures changed that change all the time."""
PROJECTION_FACTOR = 10
"""A run that is slow to project, or slow to write, is shown less often."""
LARGE_STEPS = 1000
"""An object with more steps is large; so is one whose last write took ``SLOW_S``."""
SLOW_S = 1.0
REST = 3.0
"""After the write of a large object no large one is written for so many times as long."""
LARGE_TIMEOUT_S = 60.0
"""For the one try of such a write: a second one would only add to the API server's work."""
AGAIN_S = 0.2
"""After a conflict: the watch brings what changed."""
LATER_S = 2.0
MISTAKE_S = 30.0
_LARGE = ("steps", "outputs")
_TOO_LARGE = frozenset({413, 422})


@dataclass(slots=True)
class _Entry:
    """What is known of a workflow whose status is written.

    Attributes:
        generation: the one that was acted upon.
        said: why it is not accepted; None once it is.
        next_s: no write before.
        minor_s: no write before where only minor figures changed.
        wrote_s: how long the last write took.
        large: its run was seen to have many steps.
    """

    generation: int
    said: list[WorkflowConditionUpdate] | None = None
    next_s: float = 0.0
    minor_s: float = 0.0
    wrote_s: float = 0.0
    large: bool = False


class StatusWriter:
    """Brings statuses to what the runs are."""

    def __init__(
        self,
        api: KubeClient,
        mirror: InformerCache,
        *,
        runs: RunReader,
        epoch: Epoch,
        documents: StatusStore,
    ) -> None:
        """Writes through ``api`` what ``mirror`` does not show of ``runs``.

        Args:
            api: of the leader.
            mirror: the objects as they stand; shows at once what was written.
            runs: say what should stand there.
            epoch: the leader's, which statuses name.
            documents: stores statuses that are too large for an object.
        """
        self._api = api
        self._patient_api = api.impatient(LARGE_TIMEOUT_S)
        self._mirror = mirror
        self._runs = runs
        self._epoch = epoch
        self._documents = documents
        self._entries: dict[str, _Entry] = {}
        self._queue = WorkQueue()
        self._large = WorkQueue()
        self._clock = time.monotonic
        self._sleep = asyncio.sleep
        self.written = 0

    def show(
        self, uid: str, generation: int, said: list[WorkflowConditionUpdate] | None = None
    ) -> None:
        """From now on a workflow's status is about this generation.

        Args:
            uid: of the object, which is the run's.
            generation: of the spec that was acted upon.
            said: the conditions where there is no run; None where there is one.
        """
        entry = self._entries.setdefault(uid, _Entry(generation))
        entry.generation, entry.said = generation, said
        self._queue.add(uid)

    def forget(self, uid: str) -> None:
        """The object is gone."""
        self._entries.pop(uid, None)

    def follow(self, uid: str) -> None:
        """A run has changed; nothing where its object was not looked at yet."""
        if uid in self._entries:
            self._queue.add(uid)

    async def serve(self) -> None:
        """Writes until cancelled; may run several times at once."""
        await self._queue.serve(self._look)

    async def serve_large(self) -> None:
        """Writes the large objects until cancelled; runs once."""
        await self._large.serve(self._look_at_large)

    async def _look(self, uid: str) -> None:
        entry = self._entries.get(uid)
        if entry is not None and self._is_large(uid, entry):
            self._large.add(uid)
        else:
            await self._look_at(uid)

    async def _look_at_large(self, uid: str) -> None:
        started = self._clock()
        await self._look_at(uid)
        await self._sleep(REST * (self._clock() - started))

    def _is_large(self, uid: str, entry: _Entry) -> bool:
        terms = self._runs.terms(uid)
        if terms is not None:
            entry.large = terms.steps > LARGE_STEPS
        return entry.large or entry.wrote_s > SLOW_S

    async def _look_at(self, uid: str) -> None:
        entry, obj = self._entries.get(uid), self._mirror.workflows.get(uid)
        if entry is None or obj is None:
            self.forget(uid)
            return
        now = self._clock()
        if now < entry.next_s:
            self._queue.add_after(uid, entry.next_s - now)
            return
        try:
            await self._bring(uid, entry, obj)
        except ApiError as e:
            self._refused(uid, e)
        except (StoreUnavailableError, StoreFullError) as e:
            log.warning("the status of %s waits for the store: %s", uid, e)
            self._queue.add_after(uid, LATER_S)
        except (LeadershipLostError, InvariantError):
            raise
        except Exception:  # a mistake of ours about one status must not stop the others
            log.exception("the status of %s", uid)
            self._queue.add_after(uid, MISTAKE_S)

    async def _bring(self, uid: str, entry: _Entry, obj: Object) -> None:
        started = self._clock()
        status = await self._project(uid, entry, obj)
        if status is None:
            return
        took_s = self._clock() - started
        shown = obj.get("status") or {}
        changed = status_projection.patch(status, shown)
        if changed and status_projection.only_minor(status, shown) and started < entry.minor_s:
            self._queue.add_after(uid, entry.minor_s - started)
            return
        if changed:
            entry.minor_s = started + MINOR_GAP_S
            written = self._clock()
            try:
                await self._write(obj, changed, large=self._is_large(uid, entry))
            finally:
                entry.wrote_s = self._clock() - written
                took_s += entry.wrote_s
                entry.next_s = started + max(GAP_S, PROJECTION_FACTOR * took_s)
        if status["phase"] in ENDED and self._entries.get(uid) is entry:
            self.forget(uid)
            if any(shown.get(key) != status[key] for key in ("phase", "message")):
                await announce_end(self._api, obj, status)

    async def _project(self, uid: str, entry: _Entry, obj: Object) -> Status | None:
        about = WorkflowStatusContext(
            before=obj.get("status") or {},
            generation=entry.generation,
            epoch=self._epoch.number,
            now_s=self._epoch.now_s(),
        )
        if entry.said is not None:
            return status_projection.of_refusal(entry.said, about)
        try:
            run = await self._runs.status(uid)
        except NotFoundError:
            log.warning("run %s is not there any more", uid)
            return None
        return status_projection.of_run(run, about, await self._steps_ref(run, about))

    async def _steps_ref(self, run: RunStatus, about: WorkflowStatusContext) -> str:
        if run.phase not in ENDED or not overflows(run):
            return ""
        known = str(about.before.get("stepsRef", ""))
        if known:
            return known
        labels = self._mirror.namespaces.get(run.namespace, {})
        return await self._documents.store(run, labels)

    async def _write(self, obj: Object, changed: Status, *, large: bool) -> None:
        api = self._patient_api if large else self._api
        meta = obj["metadata"]
        body: dict[str, Any] = {
            "metadata": {"resourceVersion": meta["resourceVersion"], "uid": meta["uid"]},
            "status": changed,
        }
        where = (*WORKFLOWS, meta["namespace"], meta["name"])
        try:
            answer = await api.patch_status(*where, body)
        except ApiError as e:
            if e.status not in _TOO_LARGE or not any(key in changed for key in _LARGE):
                raise
            log.warning("%s/%s: shown without its rows: %s", meta["namespace"], meta["name"], e)
            body["status"] = {k: v for k, v in changed.items() if k not in _LARGE}
            answer = await api.patch_status(*where, body)
        self.written += 1
        self._mirror.seen("workflows", "MODIFIED", answer)

    def _refused(self, uid: str, error: ApiError) -> None:
        if error.status == NOT_FOUND:
            self.forget(uid)
        elif error.status == CONFLICT:
            entry = self._entries.get(uid)
            if entry is not None and entry.wrote_s <= SLOW_S:
                entry.next_s = 0.0
            self._queue.add_after(uid, AGAIN_S)
        else:
            log.warning("the status of %s is not written, tried again: %s", uid, error)
            self._queue.add_after(uid, LATER_S)
