"""Workflows that wait for room in their namespace's quota, taken up in order of arrival."""

import asyncio
from collections import defaultdict
from collections.abc import Callable
from itertools import islice

from flowmesh_operator.ports import AvailableQuota

POLL_S = 1.0


class QuotaWaits:
    """The waiting workflows by namespace.

    Level-triggered: it compares with the room that there is now, whatever made that room.
    """

    def __init__(self, quota: AvailableQuota, retry: Callable[[str], None]) -> None:
        """Starts without any.

        Args:
            quota: says how many further runs a namespace may have.
            retry: called with the uid of a workflow for which there may be room.
        """
        self._quota = quota
        self._retry = retry
        self._namespaces = defaultdict[str, dict[str, None]](dict)

    def add(self, uid: str, namespace: str) -> None:
        """Adds a workflow behind those that wait already; it keeps its place if it is one."""
        self._namespaces[namespace][uid] = None

    def discard(self, uid: str) -> None:
        """Removes a workflow that was accepted, refused or deleted."""
        for namespace in [n for n, uids in self._namespaces.items() if uid in uids]:
            del self._namespaces[namespace][uid]
            if not self._namespaces[namespace]:
                del self._namespaces[namespace]

    def take_up(self) -> None:
        """Retries as many workflows of each namespace as there is room for."""
        for namespace, uids in self._namespaces.items():
            for uid in list(islice(uids, self._quota.available(namespace))):
                self._retry(uid)

    async def run(self) -> None:
        """Takes workflows up until cancelled."""
        while True:
            await asyncio.sleep(POLL_S)
            self.take_up()
