"""Runs a replica of the operator: it always watches, and leads while it has the Lease."""

import asyncio
import logging
import os
import socket
import sys
from functools import partial

import kopf

from flowmesh_control.observability.log_format import LogFormatError, formatter
from flowmesh_control.records.epochs import SupersededError
from flowmesh_core.errors import FlowMeshError
from flowmesh_operator.access.store_account import account_changed
from flowmesh_operator.exit_codes import OperatorExitCode
from flowmesh_operator.handlers.watches import Seen, registry_of
from flowmesh_operator.kube.client import KubeClient
from flowmesh_operator.kube.connection import connected
from flowmesh_operator.kube.crd_check import check_definitions
from flowmesh_operator.kube.informer_cache import InformerCache
from flowmesh_operator.kube.lease import LeadershipLostError
from flowmesh_operator.kube.loop_thread import LoopThread
from flowmesh_operator.leadership.leader import lead
from flowmesh_operator.leadership.liveness import alive_at
from flowmesh_operator.settings import OperatorSettings, SettingsError, read_settings
from flowmesh_operator.tasks import first, stop_event

log = logging.getLogger("flowmesh.operator")

WATCH_S = 300
PAGE = 500
IDLE_S = 0.1
"""How long a kopf worker waits for further events of one object before it frees its slot."""
BACKOFFS_S = (0.5, 1.0) + (2.0,) * 60
"""Pauses between the tries of a watch: short, to notice soon that the API server is back; after two
minutes without it the process ends and is restarted."""


class WatchError(FlowMeshError):
    """kopf ended although it was not stopped."""


def main() -> int:
    """Runs a replica until a signal or an error; returns the exit code."""
    lines = logging.StreamHandler()
    logging.basicConfig(handlers=[lines], level=logging.INFO)
    logging.getLogger("kopf").setLevel(logging.WARNING)
    logging.getLogger("aiohttp.access").setLevel(logging.WARNING)  # kopf's: a line for each probe
    logging.getLogger("kopf._core.reactor.running").addFilter(_is_unexpected)
    try:
        lines.setFormatter(formatter(os.environ))
        settings = read_settings(os.environ, host=socket.gethostname())
        asyncio.run(serve(settings))
    except (SettingsError, LogFormatError) as e:
        sys.stderr.write(f"error: {e}\n")
        return OperatorExitCode.SETTINGS
    except FlowMeshError as e:
        log.critical("%s", e)
        return _exit_code(e)
    return OperatorExitCode.STOPPED


def _exit_code(error: FlowMeshError) -> OperatorExitCode:
    if isinstance(error, LeadershipLostError | SupersededError):
        return OperatorExitCode.LEADERSHIP_LOST
    if isinstance(error, WatchError):
        return OperatorExitCode.WATCH_FAILED
    return OperatorExitCode.FAILED


async def serve(settings: OperatorSettings) -> None:
    """Watches and leads until SIGTERM or SIGINT.

    Raises:
        FlowMeshError: this process cannot continue; ``main`` maps the error to an exit code.
    """
    stop = stop_event()
    mirror = InformerCache()
    watches = LoopThread("watches", partial(watch, settings, mirror.post))
    async with connected() as client:
        api = KubeClient(client)
        await check_definitions(api)
        log.info("%s watches and waits for the lease", settings.identity)
        try:
            follow = _follow_account(settings, stop)
            await first(lead(api, mirror, settings, stop), watches.run(), follow)
        finally:
            await watches.stop()


async def _follow_account(settings: OperatorSettings, stop: asyncio.Event) -> None:
    """Stops this process, and hands the lead over, when the bucket's account has changed."""
    await account_changed(settings.store_account_dir, os.environ)
    stop.set()
    await asyncio.Event().wait()


async def watch(settings: OperatorSettings, seen: Seen, stop: asyncio.Event) -> None:
    """Runs kopf in the running event loop, which nothing else uses.

    Raises:
        WatchError: kopf ended although ``stop`` was not set.
    """
    failure: Exception | None = None
    try:
        async with alive_at(settings.health_port):
            await kopf.operator(
                registry=registry_of(seen),
                settings=_kopf_settings(settings),
                standalone=True,
                clusterwide=True,
                stop_flag=stop,
            )
    except Exception as e:  # any error: without watches this process is of no use
        failure = e
    if not stop.is_set():
        raise WatchError(
            f"the watches ended: {failure!r}",
            remedy="see the log for the cause; the kubelet restarts this replica",
        ) from failure


def _kopf_settings(settings: OperatorSettings) -> kopf.OperatorSettings:
    """Returns settings with which kopf only watches: no events, no stored progress, no scanning."""
    found = kopf.OperatorSettings()
    found.posting.enabled = False
    found.scanning.disabled = True
    found.watching.server_timeout = WATCH_S
    found.watching.client_timeout = WATCH_S + 30
    found.watching.connect_timeout = 10
    found.watching.chunk_size = PAGE
    found.networking.error_backoffs = BACKOFFS_S
    found.queueing.worker_limit = settings.watch_workers
    found.queueing.idle_timeout = IDLE_S
    found.persistence.progress_storage = kopf.StatusProgressStorage(field="status.unused")
    found.persistence.diffbase_storage = kopf.StatusDiffBaseStorage(field="status.unused")
    return found


def _is_unexpected(record: logging.LogRecord) -> bool:
    """Drops kopf's warning that it gets no signals: a flag stops it."""
    return "OS signals are ignored" not in record.getMessage()
