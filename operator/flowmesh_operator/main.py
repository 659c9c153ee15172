"""A replica of the operator: watches always, leads while it holds the Lease.

kopf runs in a thread and an event loop of its own: it cancels whatever it finds in its loop when it
ends, and takes the loop's signal handlers.
"""

import asyncio
import logging
import os
import signal
import socket
import sys
import threading

import kopf
from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import ConfigException

from flowmesh_control.epochs import SupersededError
from flowmesh_core.errors import FlowMeshError
from flowmesh_operator.api import Api
from flowmesh_operator.exits import OperatorExitCode
from flowmesh_operator.handlers.watched import Seen, registry_of
from flowmesh_operator.leading.leader import lead
from flowmesh_operator.leading.lease import LeadershipLostError
from flowmesh_operator.mirror import Mirror
from flowmesh_operator.settings import OperatorSettings, SettingsError, read_settings
from flowmesh_operator.waiting import first

log = logging.getLogger("flowmesh.operator")

CONNECTIONS = 32
WATCH_S = 300
PAGE = 500
IDLE_S = 0.1
"""A watch's worker waits so long for more of one object; its slot is another's then."""
STOP_S = 10.0
BACKOFFS_S = (0.5, 1.0) + (2.0,) * 60
"""Between the tries of a watch: an API server that comes back is seen soon, and one that is away
for two minutes is looked for by a new process."""


class WatchError(FlowMeshError):
    """kopf ended, though nobody told it to."""


def main() -> int:
    """Runs until told to stop; returns the exit code."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s %(message)s", level="INFO")
    logging.getLogger("kopf").setLevel(logging.WARNING)
    logging.getLogger("kopf._core.reactor.running").addFilter(_expected)
    try:
        settings = read_settings(os.environ, host=socket.gethostname())
        asyncio.run(serve(settings))
    except SettingsError as e:
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
        FlowMeshError: this process cannot go on; ``main`` says with which exit code it ends.
    """
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    mirror = Mirror()
    client = await _connect()
    watches = Watches(settings, mirror.post)
    log.info("%s watches and waits for the lease", settings.identity)
    try:
        await first(lead(Api(client), mirror, settings, stop), watches.run())
    finally:
        await watches.stop()
        await client.close()


class Watches:
    """kopf, in a thread of its own."""

    def __init__(self, settings: OperatorSettings, seen: Seen) -> None:
        """Takes who is told, in kopf's thread, of what is seen."""
        self._settings = settings
        self._registry = registry_of(seen)
        self._stop = threading.Event()
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._thread = threading.Thread(target=self._watch, name="watches", daemon=True)

    async def run(self) -> None:
        """Watches until cancelled.

        Raises:
            WatchError: kopf ended by itself.
        """
        self._thread.start()
        await asyncio.shield(self._ended)
        raise WatchError("the watches ended", remedy="the log says why; this replica starts again")

    async def stop(self) -> None:
        """Ends the thread."""
        self._stop.set()
        if self._thread.is_alive():
            await asyncio.to_thread(self._thread.join, STOP_S)

    def _watch(self) -> None:
        loop = self._ended.get_loop()
        error: BaseException | None = None
        try:
            asyncio.run(self._operator())
        except BaseException as e:  # told to the other thread, whatever it is
            error = e
        loop.call_soon_threadsafe(self._end, error)

    def _end(self, error: BaseException | None) -> None:
        if self._ended.done():
            return
        if error is None:
            self._ended.set_result(None)
        else:
            self._ended.set_exception(WatchError(f"the watches failed: {error!r}"))

    async def _operator(self) -> None:
        port = self._settings.health_port
        await kopf.operator(
            registry=self._registry,
            settings=_kopf_settings(self._settings),
            standalone=True,
            clusterwide=True,
            liveness_endpoint=f"http://0.0.0.0:{port}/healthz" if port else None,
            stop_flag=self._stop,
        )


def _kopf_settings(settings: OperatorSettings) -> kopf.OperatorSettings:
    """Watches only: nothing is posted, stored or scanned for."""
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


async def _connect() -> ApiClient:
    """The API server as a pod or, outside of one, as a kubeconfig file knows it.

    Raises:
        SettingsError: neither is there.
    """
    found = Configuration()
    try:
        config.load_incluster_config(client_configuration=found)
    except ConfigException:
        try:
            await config.load_kube_config(client_configuration=found)
        except (ConfigException, OSError) as e:
            raise SettingsError(
                f"no pod's service account, and no kubeconfig: {e}",
                where="KUBECONFIG",
                remedy="run it in a pod, or name a kubeconfig file",
            ) from e
    found.connection_pool_maxsize = CONNECTIONS
    found.retries = None  # Api retries, within bounds that it knows
    return ApiClient(configuration=found)


def _expected(record: logging.LogRecord) -> bool:
    """Drops kopf's warning that it gets no signals: it is told to stop by a flag."""
    return "OS signals are ignored" not in record.getMessage()
