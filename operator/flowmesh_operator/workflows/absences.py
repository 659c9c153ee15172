"""Finds the objects that are gone although no watch said so.

A watch that has to begin anew lists, and a list does not tell what is missing: objects deleted
while no operator ran, or while the API server was away.
"""

import asyncio
import re
from collections.abc import Callable, Iterable

from flowmesh_operator.api import Api
from flowmesh_operator.kinds import WORKFLOWS
from flowmesh_operator.mirror import Mirror

GAP_S = 2.0
"""A watch's list is a burst; one list of ours follows it."""
ANYWAY_S = 600.0
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""Runs submitted without an object have names of another form."""


class Absences:
    """Lists the workflows' names at the start and whenever a watch has listed."""

    def __init__(
        self,
        api: Api,
        mirror: Mirror,
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
        while True:
            await self.look()
            try:
                await asyncio.wait_for(self._mirror.listed_again(), ANYWAY_S)
                await asyncio.sleep(GAP_S)
            except TimeoutError:
                continue

    async def look(self) -> None:
        """Looks once."""
        live = [uid for uid in self._live() if _UID.fullmatch(uid)]
        before = self._mirror.begin("workflows")
        found = await self._api.list(*WORKFLOWS, metadata_only=True)
        self._mirror.listed("workflows", before, found)
        self._mirror.complete.set()
        for uid in live:
            if not self._mirror.exists(uid):
                self._absent(uid)
