"""The informer cache: watched objects in their last known state.

The watches of every replica fill it; the leader's controllers read it. Events may come from other
threads (the watches have their own); they are applied in the event loop that created the cache.
Workflows are stored without their documents once these were submitted; see :func:`condensed`.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import Any

from flowmesh_operator.kube.kinds import MIRRORED

Object = dict[str, Any]
ENDED = frozenset({"Succeeded", "Failed", "Cancelled"})
_MUTABLE = ("suspend", "priority", "budgetUsd", "deadline", "ttlSecondsAfterFinished")
_META = ("uid", "name", "namespace", "generation", "resourceVersion", "creationTimestamp")
_ENDED_STATUS = ("phase", "observedGeneration", "endedAt")


class InformerCache:
    """Objects by kind and uid.

    Attributes:
        workflows, pools, policies, quotas, services: by ``metadata.uid``, as the API server gives
            them, without ``managedFields``; workflows :func:`condensed`.
        namespaces: name → labels.
        complete: set after the first full list of workflows; a workflow that is not in the cache
            then was deleted.
    """

    def __init__(self) -> None:
        """Starts empty, bound to the running event loop."""
        self._loop = asyncio.get_running_loop()
        self.workflows: dict[str, Object] = {}
        self.pools: dict[str, Object] = {}
        self.policies: dict[str, Object] = {}
        self.quotas: dict[str, Object] = {}
        self.services: dict[str, Object] = {}
        self.namespaces: dict[str, dict[str, str]] = {}
        self.complete = asyncio.Event()
        self._objects: dict[str, dict[str, Object]] = {
            "workflows": self.workflows,
            "pools": self.pools,
            "policies": self.policies,
            "quotas": self.quotas,
            "services": self.services,
            "namespaces": {},
        }
        self._present: dict[str, set[str]] = {kind: set() for kind in MIRRORED}
        self._removed: dict[str, set[str]] = {}
        self._watchers: dict[str, set[_Watcher]] = {kind: set() for kind in MIRRORED}
        self._relisted = asyncio.Event()

    def post(self, kind: str, event: str | None, obj: Object) -> None:
        """Schedules :meth:`update` from another thread."""
        self._loop.call_soon_threadsafe(self.update, kind, event, obj)

    def update(self, kind: str, event: str | None, obj: Object) -> None:
        """Applies a watch event: ``ADDED``, ``MODIFIED``, ``DELETED``, or None from a list."""
        if event is None:
            self._relisted.set()
        meta = {k: v for k, v in obj["metadata"].items() if k != "managedFields"}
        obj, uid = {**obj, "metadata": meta}, meta["uid"]
        if event == "DELETED":
            self._remove(kind, uid)
            return
        self._present[kind].add(uid)
        objects = self._objects[kind]
        known = objects.get(uid)
        if known is not None and not _newer(obj, known):
            return
        objects[uid] = condensed(obj) if kind == "workflows" else obj
        if kind == "namespaces":
            self.namespaces[meta["name"]] = meta.get("labels") or {}
        self._changed(kind, uid)

    def exists(self, uid: str) -> bool:
        """Returns whether a workflow of this uid exists, cached in full or known from a list."""
        return uid in self._present["workflows"]

    async def changes(self, kind: str) -> AsyncIterator[str]:
        """Yields the uids of all objects, then of those that change or are deleted; coalesced."""
        watcher = _Watcher(self._objects[kind])
        self._watchers[kind].add(watcher)
        try:
            while True:
                await watcher.wake.wait()
                watcher.wake.clear()
                while watcher.uids:
                    yield watcher.uids.popitem()[0]
        finally:
            self._watchers[kind].discard(watcher)

    async def wait_for_relist(self) -> None:
        """Waits for the next list of a watch; a watch that may have missed events lists."""
        await self._relisted.wait()
        self._relisted.clear()

    def begin(self, kind: str) -> frozenset[str]:
        """Begins a full list: returns the uids that are known before it, for :meth:`listed`."""
        self._removed[kind] = set()
        return frozenset(self._present[kind])

    def listed(self, kind: str, before: frozenset[str], objects: Iterable[Object]) -> None:
        """Ends a full list that began with :meth:`begin`: removes the objects that it lacks."""
        deleted = self._removed.pop(kind, set())
        present = {o["metadata"]["uid"] for o in objects}
        for uid in before - present:
            self._remove(kind, uid)
        self._present[kind] |= present - deleted

    def _remove(self, kind: str, uid: str) -> None:
        self._present[kind].discard(uid)
        if kind in self._removed:
            self._removed[kind].add(uid)
        removed = self._objects[kind].pop(uid, None)
        if removed is None:
            return
        if kind == "namespaces":
            self.namespaces.pop(removed["metadata"]["name"], None)
        self._changed(kind, uid)

    def _changed(self, kind: str, uid: str) -> None:
        for watcher in self._watchers[kind]:
            watcher.uids[uid] = None
            watcher.wake.set()


class _Watcher:
    """A consumer of the changes of one kind, with the uids that it has not read yet."""

    def __init__(self, known: dict[str, Object]) -> None:
        self.uids: dict[str, None] = dict.fromkeys(known)
        self.wake = asyncio.Event()
        if known:
            self.wake.set()


def condensed(obj: Object) -> Object:
    """Returns a workflow reduced to the fields that controllers read, marked ``condensed``.

    It stays whole until its status has observed its generation. Then the mutable fields of the spec
    remain and, of an ended workflow's status, the phase, the generation and the time of its end.
    """
    meta, status = obj["metadata"], obj.get("status") or {}
    if status.get("observedGeneration", 0) != meta.get("generation"):
        return obj
    spec = obj.get("spec") or {}
    small: Object = {
        "condensed": True,
        "metadata": {key: meta[key] for key in _META if key in meta},
        "spec": {key: spec[key] for key in _MUTABLE if key in spec},
        "status": status,
    }
    if status.get("phase") in ENDED:
        small["status"] = {key: status[key] for key in _ENDED_STATUS if key in status}
    return small


def _newer(obj: Object, known: Object) -> bool:
    """Returns whether ``obj`` is newer: resource versions compare as integers (KEP-5504)."""
    version, before = (str(o["metadata"].get("resourceVersion", "")) for o in (obj, known))
    if version.isdigit() and before.isdigit():
        return int(version) > int(before)
    return version != before
