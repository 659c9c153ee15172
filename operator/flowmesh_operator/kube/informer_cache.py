"""The objects as last seen: filled by the watches of every replica, read by the leader.

Seen from other threads too (the watches have their own), but kept and read in the event loop that
made it. Workflows are kept small: the document of one is needed once, when it is submitted, and is
dropped as soon as its status says that it was; see :func:`condensed`.
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
        workflows, pools, policies: by ``metadata.uid``, as the API server gives them, without
            ``managedFields``; workflows :func:`condensed`.
        namespaces: name → labels.
        complete: set once every object that there was at some moment after :meth:`begin` is known
            (``listing``); what is not there then was deleted.
    """

    def __init__(self) -> None:
        """Starts empty, in the running event loop."""
        self._loop = asyncio.get_running_loop()
        self.workflows: dict[str, Object] = {}
        self.pools: dict[str, Object] = {}
        self.policies: dict[str, Object] = {}
        self.namespaces: dict[str, dict[str, str]] = {}
        self.complete = asyncio.Event()
        self._kept: dict[str, dict[str, Object]] = {
            "workflows": self.workflows,
            "pools": self.pools,
            "policies": self.policies,
            "namespaces": {},
        }
        self._present: dict[str, set[str]] = {kind: set() for kind in MIRRORED}
        self._gone: dict[str, set[str]] = {}
        self._watchers: dict[str, set[_Watcher]] = {kind: set() for kind in MIRRORED}
        self._listed_again = asyncio.Event()

    def post(self, kind: str, event: str | None, obj: Object) -> None:
        """As :meth:`seen`, from another thread."""
        self._loop.call_soon_threadsafe(self.seen, kind, event, obj)

    def seen(self, kind: str, event: str | None, obj: Object) -> None:
        """What a watch says: ``ADDED``, ``MODIFIED``, ``DELETED``, or None from a list."""
        if event is None:
            self._listed_again.set()
        meta = {k: v for k, v in obj["metadata"].items() if k != "managedFields"}
        obj, uid = {**obj, "metadata": meta}, meta["uid"]
        if event == "DELETED":
            self._remove(kind, uid)
            return
        self._present[kind].add(uid)
        kept = self._kept[kind]
        known = kept.get(uid)
        if known is not None and not _newer(obj, known):
            return
        kept[uid] = condensed(obj) if kind == "workflows" else obj
        if kind == "namespaces":
            self.namespaces[meta["name"]] = meta.get("labels") or {}
        self._changed(kind, uid)

    def exists(self, uid: str) -> bool:
        """Whether a workflow of this uid is there, known in full or only by a list."""
        return uid in self._present["workflows"]

    async def changes(self, kind: str) -> AsyncIterator[str]:
        """Yields the uids of all objects, then of those that change or go; coalesced."""
        watcher = _Watcher(self._kept[kind])
        self._watchers[kind].add(watcher)
        try:
            while True:
                await watcher.wake.wait()
                watcher.wake.clear()
                while watcher.uids:
                    yield watcher.uids.popitem()[0]
        finally:
            self._watchers[kind].discard(watcher)

    async def listed_again(self) -> None:
        """Returns after a watch has listed, which it also does when it has missed something."""
        await self._listed_again.wait()
        self._listed_again.clear()

    def begin(self, kind: str) -> frozenset[str]:
        """Before a list is asked for: what is known by then, for :meth:`listed`."""
        self._gone[kind] = set()
        return frozenset(self._present[kind])

    def listed(self, kind: str, before: frozenset[str], objects: Iterable[Object]) -> None:
        """A complete list that was asked for after :meth:`begin`: what it lacks was deleted."""
        gone = self._gone.pop(kind, set())
        present = {o["metadata"]["uid"] for o in objects}
        for uid in before - present:
            self._remove(kind, uid)
        self._present[kind] |= present - gone

    def _remove(self, kind: str, uid: str) -> None:
        self._present[kind].discard(uid)
        if kind in self._gone:
            self._gone[kind].add(uid)
        removed = self._kept[kind].pop(uid, None)
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
    """Somebody who takes the changes of a kind: uids that wait to be looked at."""

    def __init__(self, known: dict[str, Object]) -> None:
        self.uids: dict[str, None] = dict.fromkeys(known)
        self.wake = asyncio.Event()
        if known:
            self.wake.set()


def condensed(obj: Object) -> Object:
    """A workflow with no more than is needed of it, marked ``condensed``.

    Until its status says that its generation was looked at it is kept whole. Then the fields of the
    spec that may change remain, and of an ended one the few fields by which it is known and aged.
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
    """Whether a state of an object comes after another: versions compare as integers (KEP-5504)."""
    version, before = (str(o["metadata"].get("resourceVersion", "")) for o in (obj, known))
    if version.isdigit() and before.isdigit():
        return int(version) > int(before)
    return version != before
