"""Leader election with a Lease; the leader's writes are fenced by :meth:`Lease.check`.

It does not use ``kubernetes.aio.leaderelection`` (37.0.1), which does not bound a renewal by its
deadline (a request may hang for minutes while the lease expires), measures time by the wall clock,
writes local time as if it were UTC, ends on the first broken connection, never releases the lease,
and has no way to ask whether it is still valid: a process that was frozen and thawed would write
before the next renewal fails.
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

_SHORTEST_WAIT_S = 0.05
HANGS_S = 30.0
"""A leader whose event loop is blocked for this long gives up the lease."""


class LeadershipLostError(FlowMeshError):
    """This replica does not lead, or no longer leads, and must not write."""


def boot_clock() -> float:
    """Returns seconds on a clock that also counts while the process or the machine is frozen."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Lease:
    """Acquires, renews and releases the Lease, and checks that it is still valid."""

    def __init__(self, settings: OperatorSettings, clock: Callable[[], float] = boot_clock) -> None:
        """Makes an identity for this process.

        Args:
            settings: the Lease's name and times; the same for all replicas.
            clock: seconds, monotonic, advancing while the process is frozen.
        """
        self._api: KubeClient
        self._settings = settings
        self._clock = clock
        # Names the process, not the pod: a restarted container must not take over its predecessor's
        # lease as its own.
        self.identity = f"{settings.identity}_{uuid4().hex[:8]}"
        self._valid_until_s = float("-inf")
        self._last_beat_s = clock()
        self._observed: tuple[str, float] = ("", float("-inf"))
        self._expires_s = float("inf")
        self._lease: dict[str, Any] | None = None

    def check(self) -> None:
        """Checks that the lease is valid; the fence of every write of the leader.

        Raises:
            LeadershipLostError: the lease was not renewed within its deadline.
        """
        if self._clock() >= self._valid_until_s:
            raise LeadershipLostError(
                "the lease was not renewed in time: another replica may lead",
                where=self._settings.lease_name,
                remedy="the kubelet restarts this replica",
            )

    async def hold(
        self, api: KubeClient, stop: asyncio.Event, acquired: Callable[[], None]
    ) -> None:
        """Acquires the lease, renews it until ``stop`` is set, and releases it.

        Args:
            api: a client of the running event loop, without a fence.
            stop: ends the leadership, or the wait for it.
            acquired: called once, when the lease is acquired.

        Raises:
            LeadershipLostError: the lease could not be renewed, or another replica has it.
        """
        self._api = api.with_single_try(self._settings.renew_deadline_s / 2)
        if not await first(self._acquire(), stop.wait()):
            return
        self.beat()
        acquired()
        try:
            await first(self._renew_until_lost(), stop.wait())
        finally:
            await self._release()

    def beat(self) -> None:
        """Records that the leader's event loop is responsive; called every second."""
        self._last_beat_s = self._clock()

    async def _acquire(self) -> None:
        while True:
            if await self._try(self._acquire_once):
                break
            # Wakes when a dead leader's lease expires, rather than at the next regular try.
            remaining_s = max(_SHORTEST_WAIT_S, self._expires_s - self._clock())
            await asyncio.sleep(min(self._settings.retry_s, remaining_s))
        log.info("%s leads", self.identity)

    async def _renew_until_lost(self) -> None:
        while True:
            await asyncio.sleep(self._settings.retry_s)
            self.check()
            if self._clock() > self._last_beat_s + HANGS_S:
                raise LeadershipLostError(
                    f"the event loop has been blocked for {HANGS_S:.0f} s",
                    remedy="please report it with the operator's log",
                )
            await self._try(self._renew)

    async def _release(self) -> None:
        """Releases the lease if it is valid: a standby acquires it at its next try."""
        if self._lease is None or self._clock() >= self._valid_until_s:
            return
        self._valid_until_s = float("-inf")
        try:
            await self._write({**self._lease["spec"], "holderIdentity": ""})
        except ApiError as e:
            log.warning("the lease is not released, it will expire: %s", e)

    async def _try(self, work: Callable[[], Any]) -> bool:
        try:
            return bool(await work())
        except ApiError as e:
            if e.status != CONFLICT:  # another replica was faster
                log.warning("the lease cannot be read or written now: %s", e)
            return False

    async def _acquire_once(self) -> bool:
        self._expires_s = float("inf")
        self._lease = await self._read()
        if self._lease is None:
            await self._write({"leaseTransitions": 0, **self._holder_fields(since=_now())})
            return True
        spec = self._lease.get("spec") or {}
        version = self._lease["metadata"]["resourceVersion"]
        if version != self._observed[0]:
            self._observed = (version, self._clock())
        duration_s = max(self._settings.lease_s, float(spec.get("leaseDurationSeconds") or 0))
        self._expires_s = self._observed[1] + duration_s
        if spec.get("holderIdentity") and self._clock() < self._expires_s:
            return False
        transitions = int(spec.get("leaseTransitions") or 0) + 1
        await self._write({"leaseTransitions": transitions, **self._holder_fields(since=_now())})
        return True

    async def _renew(self) -> bool:
        lease = self._lease
        if lease is None or lease["spec"].get("holderIdentity") != self.identity:
            self._valid_until_s = float("-inf")
            self.check()
            return False
        try:
            await self._write(
                {**lease["spec"], **self._holder_fields(since=lease["spec"]["acquireTime"])}
            )
        except ApiError as e:
            if e.status == CONFLICT:  # another client wrote it: the next try checks its holder
                self._lease = await self._read()
            raise
        return True

    def _holder_fields(self, *, since: str) -> dict[str, Any]:
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
            self._valid_until_s = sent_s + settings.renew_deadline_s


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
