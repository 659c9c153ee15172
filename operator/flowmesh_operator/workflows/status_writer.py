"""Writes workflow statuses where they changed, at most one per second and workflow.

With each write the API server validates the whole object again, with its spec: for ten thousand
steps that takes seconds of its CPU. Large objects are therefore written one at a time, during at
most a quarter of the time, and less often the longer a write takes. Other objects and the Lease do
not wait for them.
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
from flowmesh_operator.kube.conditions import ConditionUpdate, StatusContext
from flowmesh_operator.kube.informer_cache import ENDED, InformerCache, Object
from flowmesh_operator.kube.kinds import WORKFLOWS
from flowmesh_operator.kube.lease import LeadershipLostError
from flowmesh_operator.kube.work_queue import WorkQueue
from flowmesh_operator.ports import Epoch, RunReader, StatusStore
from flowmesh_operator.workflows import status_projection
from flowmesh_operator.workflows.kubernetes_events import announce_end
from flowmesh_operator.workflows.status_projection import Status

log = logging.getLogger("flowmesh.operator")

GAP_S = 1.0
"""Interval between writes of one workflow's status."""
MINOR_GAP_S = 10.0
"""The same where only ``MINOR`` fields changed."""
PROJECTION_FACTOR = 10
"""The interval is at least this multiple of the time for projecting and writing."""
LARGE_STEPS = 1000
"""An object with more steps is large; so is one whose last write took ``SLOW_S``."""
SLOW_S = 1.0
REST = 3.0
"""The pause after the write of a large object, as a multiple of the write's duration."""
LARGE_TIMEOUT_S = 60.0
"""Timeout of the only try of such a write: a second try would only add load."""
CONFLICT_RETRY_S = 0.2
"""Pause after a conflict, in which the watch delivers the new version."""
LATER_S = 2.0
MISTAKE_S = 30.0
_LARGE = ("steps", "outputs")
_TOO_LARGE = frozenset({413, 422})


@dataclass(slots=True)
class _Entry:
    """A workflow whose status is written.

    Attributes:
        generation: the generation that was reconciled.
        said: the conditions of a workflow that is not accepted; None once it is.
        next_s: time before which nothing is written.
        minor_s: time before which a change of ``MINOR`` fields alone is not written.
        wrote_s: how long the last write took.
        large: whether its run has many steps.
    """

    generation: int
    said: list[ConditionUpdate] | None = None
    next_s: float = 0.0
    minor_s: float = 0.0
    wrote_s: float = 0.0
    large: bool = False


class StatusWriter:
    """Updates the statuses of objects from the states of their runs."""

    def __init__(
        self,
        api: KubeClient,
        mirror: InformerCache,
        *,
        runs: RunReader,
        epoch: Epoch,
        documents: StatusStore,
    ) -> None:
        """Starts with empty queues.

        Args:
            api: the leader's client.
            mirror: the informer cache, updated at once with what was written.
            runs: reads the runs' statuses.
            epoch: the leader's epoch, which statuses name.
            documents: stores statuses that are too large for an object.
        """
        self._api = api
        self._large_api = api.with_single_try(LARGE_TIMEOUT_S)
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

    def set_generation(
        self, uid: str, generation: int, said: list[ConditionUpdate] | None = None
    ) -> None:
        """Sets the generation that the next status update reports as observed.

        Args:
            uid: the uid of the object and of its run.
            generation: the generation of the spec that was reconciled.
            said: the conditions where there is no run; None where there is one.
        """
        entry = self._entries.setdefault(uid, _Entry(generation))
        entry.generation, entry.said = generation, said
        self._queue.add(uid)

    def forget(self, uid: str) -> None:
        """Drops a deleted object."""
        self._entries.pop(uid, None)

    def follow(self, uid: str) -> None:
        """Requests an update for a changed run; ignored before its object was reconciled."""
        if uid in self._entries:
            self._queue.add(uid)

    async def serve(self) -> None:
        """Writes until cancelled; may run several times at once."""
        await self._queue.serve(self._dispatch)

    async def serve_large(self) -> None:
        """Writes the large objects until cancelled; runs once."""
        await self._large.serve(self._update_large)

    async def _dispatch(self, uid: str) -> None:
        entry = self._entries.get(uid)
        if entry is not None and self._is_large(uid, entry):
            self._large.add(uid)
        else:
            await self._update(uid)

    async def _update_large(self, uid: str) -> None:
        started = self._clock()
        await self._update(uid)
        await self._sleep(REST * (self._clock() - started))

    def _is_large(self, uid: str, entry: _Entry) -> bool:
        terms = self._runs.terms(uid)
        if terms is not None:
            entry.large = terms.steps > LARGE_STEPS
        return entry.large or entry.wrote_s > SLOW_S

    async def _update(self, uid: str) -> None:
        entry, obj = self._entries.get(uid), self._mirror.workflows.get(uid)
        if entry is None or obj is None:
            self.forget(uid)
            return
        now = self._clock()
        if now < entry.next_s:
            self._queue.add_after(uid, entry.next_s - now)
            return
        try:
            await self._write_if_changed(uid, entry, obj)
        except ApiError as e:
            self._refused(uid, e)
        except (StoreUnavailableError, StoreFullError) as e:
            log.warning("the status of %s is not written, the store is unavailable: %s", uid, e)
            self._queue.add_after(uid, LATER_S)
        except (LeadershipLostError, InvariantError):
            raise
        except Exception:  # a bug that one status triggers must not stop the others
            log.exception("the status of %s", uid)
            self._queue.add_after(uid, MISTAKE_S)

    async def _write_if_changed(self, uid: str, entry: _Entry, obj: Object) -> None:
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
        context = StatusContext(
            before=obj.get("status") or {},
            generation=entry.generation,
            epoch=self._epoch.number,
            now_s=self._epoch.now_s(),
        )
        if entry.said is not None:
            return status_projection.of_refusal(entry.said, context)
        try:
            run = await self._runs.status(uid)
        except NotFoundError:
            log.warning("run %s no longer exists", uid)
            return None
        return status_projection.of_run(run, context, await self._steps_ref(run, context))

    async def _steps_ref(self, run: RunStatus, context: StatusContext) -> str:
        if run.phase not in ENDED or not overflows(run):
            return ""
        known = str(context.before.get("stepsRef", ""))
        if known:
            return known
        labels = self._mirror.namespaces.get(run.namespace, {})
        return await self._documents.store(run, labels)

    async def _write(self, obj: Object, changed: Status, *, large: bool) -> None:
        api = self._large_api if large else self._api
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
            log.warning(
                "%s/%s: the status is written without steps and outputs: %s",
                meta["namespace"],
                meta["name"],
                e,
            )
            body["status"] = {k: v for k, v in changed.items() if k not in _LARGE}
            answer = await api.patch_status(*where, body)
        self.written += 1
        self._mirror.update("workflows", "MODIFIED", answer)

    def _refused(self, uid: str, error: ApiError) -> None:
        if error.status == NOT_FOUND:
            self.forget(uid)
        elif error.status == CONFLICT:
            entry = self._entries.get(uid)
            if entry is not None and entry.wrote_s <= SLOW_S:
                entry.next_s = 0.0
            self._queue.add_after(uid, CONFLICT_RETRY_S)
        else:
            log.warning("the status of %s is not written, trying again: %s", uid, error)
            self._queue.add_after(uid, LATER_S)
