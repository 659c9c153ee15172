"""The Lease that one replica holds.

A loop of its own and not ``kubernetes.aio.leaderelection``, because that one (37.0.1) does not
bound a renewal by its deadline (a request may hang for minutes while the lease runs out), measures
time by the wall clock, writes local time as if it were UTC, ends on the first broken connection,
never gives the lease back, and cannot be asked whether it still holds: a process that was frozen
and thawed would write before it looked.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from flowmesh_core.errors import FlowMeshError
from flowmesh_operator.kube.client import CONFLICT, NOT_FOUND, ApiError, KubeClient
from flowmesh_operator.kube.kinds import LEASES
from flowmesh_operator.settings import OperatorSettings
from flowmesh_operator.tasks import first

log = logging.getLogger("flowmesh.operator")

_SOON_S = 0.05
HANGS_S = 30.0
"""A leader whose event loop has not turned for so long does no work: another one should."""


class LeadershipLostError(FlowMeshError):
    """This replica does not lead (any more) and must not write."""


def boot_clock() -> float:
    """Seconds that go on while the process is frozen or the machine sleeps."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Lease:
    """Gets, renews and gives back the Lease; says whether it is held."""

    def __init__(self, settings: OperatorSettings, clock: Callable[[], float] = boot_clock) -> None:
        """Takes what holds for all replicas.

        Args:
            settings: names and times.
            clock: seconds, never stepping, going on while the process is frozen.
        """
        self._api: KubeClient
        self._settings = settings
        self._clock = clock
        # A process, not a pod: a restarted container must not take its predecessor's lease for its.
        self.identity = f"{settings.identity}_{uuid4().hex[:8]}"
        self._held_until_s = float("-inf")
        self._beat_s = clock()
        self._observed: tuple[str, float] = ("", float("-inf"))
        self._free_s = float("inf")
        self._lease: dict[str, Any] | None = None

    def check(self) -> None:
        """Called before every write of a leader.

        Raises:
            LeadershipLostError: the lease was not renewed within its deadline.
        """
        if self._clock() >= self._held_until_s:
            raise LeadershipLostError(
                "the lease was not renewed in time: another replica may lead",
                where=self._settings.lease_name,
                remedy="this replica ends and is started again",
            )

    async def hold(
        self, api: KubeClient, stop: asyncio.Event, acquired: Callable[[], None]
    ) -> None:
        """Gets the lease, renews it until told to stop, and gives it back.

        Args:
            api: of the running event loop, without a fence: this is what the fence asks.
            stop: ends it.
            acquired: called once the lease is held.

        Raises:
            LeadershipLostError: it could not be renewed, or another replica holds it.
        """
        self._api = api.impatient(self._settings.renew_deadline_s / 2)
        if not await first(self._acquire(), stop.wait()):
            return
        self.beat()
        acquired()
        try:
            await first(self._keep(), stop.wait())
        finally:
            await self._release()

    def beat(self) -> None:
        """The leader's event loop turns: said every second."""
        self._beat_s = self._clock()

    async def _acquire(self) -> None:
        while True:
            if await self._try(self._take):
                break
            # A dead leader's lease is taken when it has run out, and not at the next try after.
            left_s = max(_SOON_S, self._free_s - self._clock())
            await asyncio.sleep(min(self._settings.retry_s, left_s))
        log.info("%s leads", self.identity)

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(self._settings.retry_s)
            self.check()
            if self._clock() > self._beat_s + HANGS_S:
                raise LeadershipLostError(
                    f"the event loop has not turned for {HANGS_S:.0f} s",
                    remedy="please report it, with the log",
                )
            await self._try(self._renew)

    async def _release(self) -> None:
        """Gives the lease back if it is held: a standby takes it at its next try."""
        if self._lease is None or self._clock() >= self._held_until_s:
            return
        self._held_until_s = float("-inf")
        try:
            await self._write({**self._lease["spec"], "holderIdentity": ""})
        except ApiError as e:
            log.warning("the lease is not given back, it runs out by itself: %s", e)

    async def _try(self, work: Callable[[], Any]) -> bool:
        try:
            return bool(await work())
        except ApiError as e:
            if e.status != CONFLICT:  # somebody else was faster: no news
                log.warning("the lease cannot be had now: %s", e)
            return False

    async def _take(self) -> bool:
        self._free_s = float("inf")
        self._lease = await self._read()
        if self._lease is None:
            await self._write({"leaseTransitions": 0, **self._terms(since=_now())})
            return True
        spec = self._lease.get("spec") or {}
        version = self._lease["metadata"]["resourceVersion"]
        if version != self._observed[0]:
            self._observed = (version, self._clock())
        lasts_s = max(self._settings.lease_s, float(spec.get("leaseDurationSeconds") or 0))
        self._free_s = self._observed[1] + lasts_s
        if spec.get("holderIdentity") and self._clock() < self._free_s:
            return False
        transitions = int(spec.get("leaseTransitions") or 0) + 1
        await self._write({"leaseTransitions": transitions, **self._terms(since=_now())})
        return True

    async def _renew(self) -> bool:
        lease = self._lease
        if lease is None or lease["spec"].get("holderIdentity") != self.identity:
            self._held_until_s = float("-inf")
            self.check()
            return False
        try:
            await self._write({**lease["spec"], **self._terms(since=lease["spec"]["acquireTime"])})
        except ApiError as e:
            if e.status == CONFLICT:  # somebody wrote it: look who holds it, at the next try
                self._lease = await self._read()
            raise
        return True

    def _terms(self, *, since: str) -> dict[str, Any]:
        return {
            "holderIdentity": self.identity,
            "leaseDurationSeconds": int(self._settings.lease_s),
            "acquireTime": since,
            "renewTime": _now(),
        }

    async def _read(self) -> dict[str, Any] | None:
        settings = self._settings
        try:
            return await self._api.get(*LEASES, settings.namespace, settings.lease_name)
        except ApiError as e:
            if e.status == NOT_FOUND:
                return None
            raise

    async def _write(self, spec: dict[str, Any]) -> None:
        settings, sent_s = self._settings, self._clock()  # the lease counts from before the request
        name = settings.lease_name
        body: dict[str, Any] = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": name, "namespace": settings.namespace},
            "spec": spec,
        }
        if self._lease is None:
            self._lease = await self._api.create(*LEASES, settings.namespace, body)
        else:
            body["metadata"] = self._lease["metadata"]
            self._lease = await self._api.replace(*LEASES, settings.namespace, name, body)
        if spec["holderIdentity"] == self.identity:
            self._held_until_s = sent_s + settings.renew_deadline_s


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
