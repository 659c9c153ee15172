"""Reports of a router to the control plane, every few seconds."""

import asyncio
import logging
import secrets
import time
from pathlib import Path
from typing import Protocol

import msgspec

from flowmesh_core.errors import FlowMeshError
from flowmesh_core.protocol.router_reports import (
    EVERY_S,
    ReplicaProfile,
    RouterReport,
)
from flowmesh_serving.calls.replicas import ReplicaTable
from flowmesh_serving.metrics import RouterMetrics

_NAME_BYTES = 8
_log = logging.getLogger(__name__)


class ReportSink(Protocol):
    """Where reports go."""

    async def send(self, report: RouterReport) -> None:
        """Sends one.

        Raises:
            FlowMeshError: it cannot be sent now.
        """
        ...


class ReportFile:
    """The last report as a file, which ``fmesh serve`` sends to its control plane."""

    def __init__(self, path: Path) -> None:
        self._path = path

    async def send(self, report: RouterReport) -> None:
        """As :meth:`ReportSink.send`."""
        new = self._path.with_suffix(".new")
        try:
            new.touch(mode=0o600)
            new.write_bytes(msgspec.json.encode(report))
            new.replace(self._path)
        except OSError as error:
            raise FlowMeshError(
                f"the report cannot be written: {error}",
                where=str(self._path),
                remedy="the router tries again every few seconds; requests are served without it",
            ) from error


class RouterReports:
    """Makes the reports of one router and sends them."""

    def __init__(self, metrics: RouterMetrics, replicas: ReplicaTable, sink: ReportSink) -> None:
        """Reports what these have counted to the sink."""
        self._metrics = metrics
        self._replicas = replicas
        self._sink = sink
        self._router = secrets.token_hex(_NAME_BYTES)
        self._began_s = time.monotonic()

    async def run(self) -> None:
        """Reports until it is cancelled; a report that cannot be sent is made up by the next."""
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                await self._sink.send(self.report())
            except FlowMeshError as error:
                _log.warning("%s", error)

    def report(self) -> RouterReport:
        """Returns all totals."""
        found = (
            counts.report(service, self._profiles(service))
            for service, counts in self._metrics.counts().items()
        )
        services = tuple(s for s in found if s.came or s.replicas)
        return RouterReport(self._router, time.monotonic() - self._began_s, services)

    def _profiles(self, service: str) -> tuple[ReplicaProfile, ...]:
        return tuple(
            ReplicaProfile(
                replica_id,
                r.load.sizes,
                r.load.seconds,
                max(1, r.load.cap),
                r.load.call_lengths,
            )
            for replica_id, r in self._replicas.of(service).items()
            if r.load.sizes
        )
