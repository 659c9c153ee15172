"""Detects deleted workflow objects for which no watch event came.

A watch that restarts lists the objects, and a list does not name those that were deleted while no
operator ran or while the API server was away. A control plane that starts checks before it recovers
a run.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence

from flowmesh_operator.kube.client import KubeClient
from flowmesh_operator.kube.informer_cache import InformerCache, Object
from flowmesh_operator.kube.kinds import WORKFLOWS

DELETED = "its object was deleted"
GAP_S = 2.0
"""Delay after a watch's list, which comes in bursts, so that one list here follows them all."""
RELIST_S = 600.0
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""The uid of an object; runs that were submitted without an object have other ids."""


class DeletionDetector:
    """Lists the workflows' names at the start and after each list of a watch."""

    def __init__(
        self,
        api: KubeClient,
        mirror: InformerCache,
        *,
        live: Callable[[], Iterable[str]],
        absent: Callable[[str], None],
    ) -> None:
        """Starts without a list.

        Args:
            api: used for reads only.
            mirror: the informer cache; gets the list, and is complete after the first.
            live: returns the uids of all runs that have not ended.
            absent: called with the uid of each such run that has no object.
        """
        self._api = api
        self._mirror = mirror
        self._live = live
        self._absent = absent

    async def run(self) -> None:
        """Scans until cancelled.

        Raises:
            ApiError: the workflows cannot be listed.
        """
        if self._mirror.complete.is_set():  # the control plane listed at its start
            self._report(self._runs_with_object())
        else:
            await self.scan()
        while True:
            try:
                await asyncio.wait_for(self._mirror.wait_for_relist(), RELIST_S)
                await asyncio.sleep(GAP_S)
            except TimeoutError:
                pass
            await self.scan()

    async def scan(self) -> None:
        """Lists the workflows once and reports the runs without an object."""
        live = self._runs_with_object()
        await list_workflows(self._api, self._mirror)
        self._report(live)

    def _runs_with_object(self) -> list[str]:
        return [uid for uid in self._live() if _UID.fullmatch(uid)]

    def _report(self, live: Iterable[str]) -> None:
        for uid in live:
            if not self._mirror.exists(uid):
                self._absent(uid)


async def list_workflows(api: KubeClient, mirror: InformerCache) -> list[Object]:
    """Lists all workflows' metadata into the informer cache, which is complete then.

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
    """Returns the runs whose object is deleted or being deleted, with the reason.

    Args:
        api: used for reads only.
        mirror: the informer cache; gets the list.
        uids: the unfinished runs; those that were submitted without an object are ignored.

    Raises:
        ApiError: the workflows cannot be listed.
    """
    of_objects = [uid for uid in uids if _UID.fullmatch(uid)]
    if not of_objects:
        return {}
    found = [obj["metadata"] for obj in await list_workflows(api, mirror)]
    present = {meta["uid"] for meta in found if not meta.get("deletionTimestamp")}
    return {uid: DELETED for uid in of_objects if uid not in present}
