"""Stores checkpoints while their attempts run, and fetches those at which attempts begin.

Of each attempt one checkpoint is being stored and one may wait; a newer one replaces the one that
waits. An error here never ends an attempt: it only loses progress that could have been resumed.
"""

import asyncio
import itertools
import logging
import os
import shutil
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from flowmesh_core.errors import FlowMeshError, LostBlobError
from flowmesh_core.protocol.attempt_grants import read_grant
from flowmesh_core.protocol.messages import Assignment, Checkpoint
from flowmesh_core.units import Digest
from flowmesh_core.worker_agent.events import CheckpointStored, Event
from flowmesh_store.blobs import BlobView, BlobViews
from flowmesh_store.tree import fetch_tree, store_tree
from flowmesh_worker.data.store_retry import retry_while_unavailable
from flowmesh_worker.ipc.frames import HostInput
from flowmesh_worker.log_format import attempt_fields

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Storing:
    """The checkpoints of one attempt that are not stored yet."""

    task: "asyncio.Task[None] | None" = None
    waiting: tuple[Path, float] | None = None


class Checkpoints:
    """The checkpoints of all attempts of a worker."""

    def __init__(self, views: BlobViews, directory: Path, post: Callable[[Event], None]) -> None:
        """Prepares for storing and fetching.

        Args:
            views: the store.
            directory: on the hosts' file system.
            post: takes ``CheckpointStored``.
        """
        self._views = views
        self._directory = directory
        self._post = post
        self._storing: dict[str, _Storing] = {}
        self._numbers = itertools.count(1)
        self._removals: set[asyncio.Task[None]] = set()

    def take(self, assignment: Assignment, path: str, done: float) -> None:
        """Moves a checkpoint out of the host's directory, which is removed with the host."""
        attempt_id = assignment.attempt_id
        target = self._directory / f"checkpoint-{next(self._numbers)}"
        try:
            os.rename(path, target)
        except (OSError, ValueError) as error:  # ValueError: it is not a path
            text = "a checkpoint of %s is lost: %s"
            _log.warning(text, attempt_id, error, extra={"attempt": attempt_id})
            return
        storing = self._storing.setdefault(attempt_id, _Storing())
        if storing.waiting is not None:
            self._remove(storing.waiting[0])
        storing.waiting = (target, done)
        if storing.task is None:
            storing.task = asyncio.get_running_loop().create_task(self._store(assignment, storing))

    async def settled(self, attempt_id: str) -> None:
        """Waits until all checkpoints of an attempt are stored and reported, or have failed."""
        storing = self._storing.get(attempt_id)
        if storing is not None and storing.task is not None:
            await asyncio.wait([storing.task])

    def forget(self, attempt_id: str) -> None:
        """Drops checkpoints of an attempt that has ended and that are not stored yet."""
        storing = self._storing.pop(attempt_id, None)
        if storing is None:
            return
        if storing.waiting is not None:
            self._remove(storing.waiting[0])
            storing.waiting = None
        if storing.task is not None:
            storing.task.cancel()

    async def fetch(
        self, assignment: Assignment, pins: AsyncExitStack
    ) -> tuple[HostInput | None, Checkpoint | None]:
        """Fetches the checkpoint of an attempt into a directory that exists until ``pins`` closes.

        Returns:
            The input for the host and None; or None and the report that it cannot be used.
        """
        ref = assignment.resume
        assert ref is not None, "only an attempt with a checkpoint fetches one"
        digest = ref.artifact.digest
        target = self._directory / f"resume-{next(self._numbers)}"
        pins.push_async_callback(asyncio.to_thread, shutil.rmtree, target, ignore_errors=True)
        try:
            await retry_while_unavailable(
                lambda: fetch_tree(self._blobs(assignment), digest, target)
            )
        except (FlowMeshError, OSError) as error:
            text = "%s begins at the start: its checkpoint cannot be used: %s"
            _log.warning(text, assignment.attempt_id, error, extra=attempt_fields(assignment))
            lost = error.digest if isinstance(error, LostBlobError) else ""
            spoiled = (Digest(lost or digest),)
            return None, Checkpoint(assignment.attempt_id, digest, spoiled=spoiled)
        return HostInput("tree", digest, (str(target),)), None

    def _blobs(self, assignment: Assignment) -> BlobView:
        grant = read_grant(assignment.token)
        return self._views.view(
            write=grant.write_scope, read=grant.readable, token=assignment.token
        )

    async def _store(self, assignment: Assignment, storing: _Storing) -> None:
        attempt_id = assignment.attempt_id
        while storing.waiting is not None:
            (path, done), storing.waiting = storing.waiting, None
            try:
                await self._store_one(assignment, path, done)
            except Exception as error:
                text = "a checkpoint of %s could not be stored: %s"
                _log.warning(text, attempt_id, error, extra={"attempt": attempt_id})
            finally:
                self._remove(path)
        storing.task = None

    async def _store_one(self, assignment: Assignment, path: Path, done: float) -> None:
        tree = await retry_while_unavailable(lambda: store_tree(self._blobs(assignment), path))
        stored = Checkpoint(assignment.attempt_id, tree.digest, done, tree.size_bytes)
        self._post(CheckpointStored(stored))

    def _remove(self, path: Path) -> None:
        with suppress(RuntimeError):  # the loop is closing; the whole directory is removed then
            task = asyncio.get_running_loop().create_task(_removed(path))
            self._removals.add(task)
            task.add_done_callback(self._removals.discard)


async def _removed(path: Path) -> None:
    await asyncio.to_thread(shutil.rmtree, path, ignore_errors=True)
