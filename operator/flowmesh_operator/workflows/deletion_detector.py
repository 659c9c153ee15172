"""Finds the objects that are gone although no watch said so.

A watch that has to begin anew lists, and a list does not tell what is missing: objects deleted
while no operator ran, or while the API server was away. A control plane that starts asks before it
takes a run up.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from flowmesh_operator.kube.client import KubeClient
from flowmesh_operator.kube.informer_cache import InformerCache, Object
from flowmesh_operator.kube.kinds import WORKFLOWS

DELETED = "its object was deleted"
GAP_S = 2.0
"""A watch's list is a burst; one list of ours follows it."""
ANYWAY_S = 600.0
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""Runs submitted without an object have names of another form."""


class DeletionDetector:
    """Lists the workflows' names at the start and whenever a watch has listed."""

    def __init__(
        self,
        api: KubeClient,
        mirror: InformerCache,
        *,
        live: Callable[[], Iterable[str]],
        absent: Callable[[str], None],
    ) -> None:
        """Takes who knows and who is told.

        Args:
            api: reads only.
            mirror: told of the list; complete after the first.
            live: the uids of all runs that go on.
            absent: told of a run that goes on without an object.
        """
        self._api = api
        self._mirror = mirror
        self._live = live
        self._absent = absent

    async def run(self) -> None:
        """Looks until cancelled.

        Raises:
            ApiError: the workflows cannot be listed.
        """
        if self._mirror.complete.is_set():  # the control plane has asked at its start
            self._report(self._of_objects())
        else:
            await self.look()
        while True:
            try:
                await asyncio.wait_for(self._mirror.listed_again(), ANYWAY_S)
                await asyncio.sleep(GAP_S)
            except TimeoutError:
                pass
            await self.look()

    async def look(self) -> None:
        """Looks once."""
        live = self._of_objects()
        await list_workflows(self._api, self._mirror)
        self._report(live)

    def _of_objects(self) -> list[str]:
        return [uid for uid in self._live() if _UID.fullmatch(uid)]

    def _report(self, live: Iterable[str]) -> None:
        for uid in live:
            if not self._mirror.exists(uid):
                self._absent(uid)


async def list_workflows(api: KubeClient, mirror: InformerCache) -> list[Object]:
    """All workflows' names; the mirror is told of them, and complete.

    Raises:
        ApiError: they cannot be listed.
    """
    before = mirror.begin("workflows")
    found = await api.list(*WORKFLOWS, metadata_only=True)
    mirror.listed("workflows", before, found)
    mirror.complete.set()
    return found


async def withdrawn(
    api: KubeClient, mirror: InformerCache, uids: Sequence[str]
) -> Mapping[str, str]:
    """Those of the runs whose object is gone or going, and why they end.

    Args:
        api: reads only.
        mirror: told of the list.
        uids: of unfinished runs; those that were submitted without an object go on.

    Raises:
        ApiError: the workflows cannot be listed.
    """
    of_objects = [uid for uid in uids if _UID.fullmatch(uid)]
    if not of_objects:
        return {}
    found = [obj["metadata"] for obj in await list_workflows(api, mirror)]
    there = {meta["uid"] for meta in found if not meta.get("deletionTimestamp")}
    return {uid: DELETED for uid in of_objects if uid not in there}
