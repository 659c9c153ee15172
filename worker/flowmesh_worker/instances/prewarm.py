"""Hosts held open ahead of work: what the control plane lists is fetched and opened, one by one.

The list is a level: a new one replaces it, and every change here is judged against the whole of it.
Attempts go first: nothing is fetched beside an attempt that fetches, and nothing opens while one
waits for a lane. A host that was opened so is a lane like any other; off the list it stays warm.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from flowmesh_core.protocol.messages import FailureReport, PrewarmSpec
from flowmesh_core.units import Digest
from flowmesh_worker.data.components import ComponentCache
from flowmesh_worker.engines.registry import Engines
from flowmesh_worker.failures import store_failure
from flowmesh_worker.instances.assignment_checks import refused
from flowmesh_worker.instances.instance import EngineInstance
from flowmesh_worker.instances.instances import EngineInstances
from flowmesh_worker.ipc.frames import HostInput

_log = logging.getLogger(__name__)


class Prewarmer:
    """Brings about what is listed, in its order; what waits for room holds up nothing else."""

    def __init__(
        self,
        engines: Engines,
        components: ComponentCache,
        lanes: EngineInstances,
        *,
        may_open: Callable[[], bool],
        fetching: Callable[[], Collection[Digest]],
    ) -> None:
        """Takes the parts that an opening passes through.

        Args:
            engines: those there are.
            components: where models come from.
            lanes: where hosts are opened.
            may_open: whether the worker is connected and stays; else it opens nothing new.
            fetching: signatures of the attempts that fetch their inputs.
        """
        self._engines = engines
        self._components = components
        self._lanes = lanes
        self._may_open = may_open
        self._fetching = fetching
        self._listed: dict[Digest, PrewarmSpec] = {}
        self._failed: dict[Digest, PrewarmSpec] = {}
        self._taken: dict[Digest, tuple[PrewarmSpec, asyncio.Task[None]]] = {}
        self._fetched: dict[Digest, dict[str, HostInput]] = {}
        self._busy = False
        self._moved = asyncio.Event()
        self._closed = False

    def told(self, openings: Iterable[PrewarmSpec]) -> None:
        """Follows this list from now on; what has left it is not fetched any further."""
        self._listed = {opening.signature: opening for opening in openings}
        self._failed = {s: o for s, o in self._failed.items() if self._listed.get(s) == o}
        self._lanes.hold_open(self._listed)
        for signature, (opening, task) in self._taken.items():
            if self._listed.get(signature) != opening:
                task.cancel()
        self.go_on()

    def lane_changed(self, lane: EngineInstance) -> None:
        """A lane has loaded, has become idle, or is gone."""
        opening = None if lane.isolated_for else self._listed.get(lane.signature)
        if opening is not None:
            if lane.state == "ready":
                self._failed.pop(lane.signature, None)
            elif lane.failure is not None and not lane.served:
                self._fail(opening, lane.failure)
        self.go_on()

    def attempt_moved(self) -> None:
        """An attempt has entered a phase, or ended."""
        self._moved.set()

    def go_on(self) -> None:
        """Takes up the listed hosts that are not open."""
        self._moved.set()
        for signature, opening in self._listed.items():
            if signature not in self._taken and self._is_missing(opening) and not self._closed:
                task = asyncio.get_running_loop().create_task(self._open(opening))
                self._taken[signature] = (opening, task)
                task.add_done_callback(partial(self._done, signature))

    async def close(self) -> None:
        """Stops what is being fetched; nothing opens after this."""
        self._closed = True
        tasks = [task for _, task in self._taken.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _is_missing(self, opening: PrewarmSpec) -> bool:
        """Whether it is listed, has not failed, and has no lane."""
        signature = opening.signature
        wanted = self._listed.get(signature) == opening and self._failed.get(signature) != opening
        return wanted and not self._lanes.has(signature)

    async def _open(self, opening: PrewarmSpec) -> None:
        failure = refused(self._engines, opening, draining=False) or self._lanes.too_large(opening)
        if failure is None:
            self._lanes.prepared.asked(opening)
            try:
                await self._fetch_and_open(opening)
            except Exception as error:
                failure = store_failure(error, "its host could not be opened")
        if failure is not None:
            self._fail(opening, failure)

    async def _fetch_and_open(self, opening: PrewarmSpec) -> None:
        loaded: dict[str, HostInput] = {}
        # Pinned until the lane has them, however long that waits for room: what was fetched ahead
        # must not be fetched again for want of disk at every move of a lane.
        async with AsyncExitStack() as pins:
            for port, digest in opening.components.items():
                if not await self._turn(opening, partial(self._is_fetchable, opening, digest)):
                    return
                path = await self._fetch(digest, pins)
                loaded[port] = HostInput("tree", digest, (str(path),))
            self._fetched[opening.signature] = loaded
            try:
                await self._turn(opening, partial(self._open_fetched, opening))
            finally:
                del self._fetched[opening.signature]

    def _is_fetchable(self, opening: PrewarmSpec, digest: Digest) -> bool:
        if self._components.holds(digest):
            return True
        missing = (o for s, o in self._listed.items() if s not in self._fetched)
        first = next(filter(self._is_missing, missing), None)
        return first == opening and not self._busy and not self._fetching()

    async def _fetch(self, digest: Digest, pins: AsyncExitStack) -> Path:
        if self._components.holds(digest):
            return await pins.enter_async_context(self._components.pinned(digest))
        self._busy = True
        try:
            return await pins.enter_async_context(self._components.pinned(digest))
        finally:
            self._busy = False
            self._moved.set()

    def _open_fetched(self, opening: PrewarmSpec) -> bool:
        """Opens what it can of all that is fetched, in the order of the list."""
        for signature, one in self._listed.items():
            loaded = self._fetched.get(signature)
            if loaded is not None and self._is_missing(one):
                self._lanes.open_ahead(one, loaded, self._fetching())
        return self._lanes.has(opening.signature)

    async def _turn(self, opening: PrewarmSpec, done: Callable[[], bool]) -> bool:
        """Waits until something can be done; False where there is no need of it any more."""
        while self._is_missing(opening):
            self._moved.clear()
            if self._may_open() and done():
                return True
            await self._moved.wait()
        return False

    def _done(self, signature: Digest, _: asyncio.Task[None]) -> None:
        del self._taken[signature]
        self.go_on()

    def _fail(self, opening: PrewarmSpec, failure: FailureReport) -> None:
        if self._failed.get(opening.signature) == opening:
            return
        self._failed[opening.signature] = opening
        _log.warning(
            "no host of %s is held open: %s; %s",
            opening.engine,
            failure.message,
            failure.remedy or "it is tried again when work asks for it",
            extra={
                "signature": opening.signature,
                "engine": opening.engine,
                "reason": failure.message,
                "detail": failure.detail,
            },
        )
