"""A local fabric: the control plane in a thread, its API on the loopback, and local workers."""

import asyncio
import contextlib
import logging
import os
import secrets
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, replace
from logging.handlers import RotatingFileHandler
from pathlib import Path

import msgspec

from flowmesh_cli.connection.owner import OwnerRecord, Ownership
from flowmesh_cli.connection.state_dir import StateDir
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.local.control import ListenAddress, serve_control
from flowmesh_cli.local.options import PLANNER, POOL, LocalOptions
from flowmesh_cli.local.ports import HOST, is_free, require_free
from flowmesh_cli.local.workers import LocalWorkers, WorkerOptions, end_left_over
from flowmesh_control.observability.log_format import formatter
from flowmesh_core.errors import FlowMeshError, StoreError

_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 15.0
_LOG_BYTES = 16 << 20
"""From this size on the log begins anew; the one before it stays as ``control.log.1``."""


@dataclass(slots=True)
class _ControlThread:
    """The state that the control thread shares with the main thread."""

    ready: threading.Event
    stop: asyncio.Event | None = None
    loop: asyncio.AbstractEventLoop | None = None
    error: BaseException | None = None
    url: str = ""
    only_reads: bool = False


class LocalFabric:
    """Serves a state folder that this process owns."""

    def __init__(self, state: StateDir, ownership: Ownership, options: LocalOptions) -> None:
        """Chooses the port and writes the owner's record.

        Raises:
            CliError: the requested port is in use.
        """
        self._state = state
        self._ownership = ownership
        self._options = options
        self._control = _ControlThread(threading.Event())
        self._thread = threading.Thread(target=self._run, name="control", daemon=True)
        self._workers: LocalWorkers | None = None
        self._cleanup = ExitStack()
        self._port = self._choose_port()
        self._owner = self._make_owner()

    def start(self) -> OwnerRecord:
        """Starts the control plane, which recovers unfinished runs, and the workers.

        Raises:
            FlowMeshError: the store or the port cannot be used.
        """
        self._thread.start()
        if not self._control.ready.wait(_START_TIMEOUT_S) or self._control.error is not None:
            self._raise_start_error()
        self._owner = _replaced(
            self._owner, url=self._control.url, port=_port_of(self._control.url)
        )
        self._write_owner(self._owner)
        if self._options.workers:
            self._start_workers()
        return self._owner

    @property
    def _is_reader(self) -> bool:
        return self._options.serves == "read"

    @property
    def failure(self) -> str:
        """Why the control plane ended by itself; empty while it runs."""
        return str(self._control.error or "")

    def close_to_others(self, lock: AbstractContextManager[bool]) -> bool:
        """Takes ``lock`` until :meth:`stop`, so that none can join; returns whether it could."""
        with ExitStack() as attempt:
            if attempt.enter_context(lock):
                self._cleanup = attempt.pop_all()
                return True
        return False

    def stop(self) -> None:
        """Ends the workers, then the control plane, then releases the folder."""
        if self._workers is not None:
            self._workers.stop()
        self._end_control()
        self._release()
        self._cleanup.close()

    def kill(self) -> None:
        """Kills the workers."""
        if self._workers is not None:
            self._workers.kill()

    def _run(self) -> None:
        _log_to(self._state.path / "control.log")
        try:
            asyncio.run(self._serve())
        except BaseException as e:
            self._control.error = e
        finally:
            self._control.ready.set()

    async def _serve(self) -> None:
        self._control.loop, self._control.stop = asyncio.get_running_loop(), asyncio.Event()

        def ready(url: str, only_reads: bool) -> None:
            self._control.url, self._control.only_reads = url, only_reads
            self._control.ready.set()

        address = ListenAddress(HOST, self._port, self._owner.token, self._owner.worker_token)
        await serve_control(
            self._state.path,
            address,
            dispatches=not self._is_reader,
            weights=self._options.weights,
            collection=self._options.collection,
            ready=ready,
            stop=self._control.stop,
        )

    def _end_control(self) -> None:
        loop, stop = self._control.loop, self._control.stop
        if loop is not None and stop is not None:
            with contextlib.suppress(RuntimeError):  # it has ended by itself
                loop.call_soon_threadsafe(stop.set)
        if self._thread.is_alive():
            self._thread.join(_STOP_TIMEOUT_S)

    def _raise_start_error(self) -> None:
        error = self._control.error
        self._end_control()
        self._release()
        if isinstance(error, FlowMeshError):
            raise error
        raise CliError(
            f"the control plane did not start: {error or 'no answer'}",
            ExitCode.INTERNAL,
            where=str(self._state.path),
            remedy="FMESH_DEBUG=1 shows the traceback",
        ) from error

    def _release(self) -> None:
        # A query must not erase the record of workers that a killed owner left waiting.
        self._ownership.release(leave=self._ownership.previous if self._is_reader else None)

    def _start_workers(self) -> None:
        options = WorkerOptions(
            gateway=f"ws://{HOST}:{self._owner.port}",
            token=self._owner.worker_token,
            price_usd_per_hour=self._options.price_usd_per_hour,
            store_grace_s=self._options.collection.grace_s,
        )
        state = self._state
        if self._control.only_reads:
            folder = tempfile.TemporaryDirectory(prefix="flowmesh-workers-")
            self._cleanup.callback(folder.cleanup)
            state = replace(state, worker_root=Path(folder.name))
        self._workers = LocalWorkers(
            state,
            options,
            self._worker_names(),
            changed=self._workers_changed,
            say=self._options.say,
        )
        previous = None if self._is_reader else self._ownership.previous
        left_over = previous.workers if previous is not None else {}
        if previous is not None and previous.port != self._owner.port:
            end_left_over(left_over)
            left_over = {}
        self._workers.start(left_over)

    def _worker_names(self) -> list[str]:
        # A plan's workers must not be mistaken for workers that a killed owner left.
        kind = PLANNER if self._is_reader else POOL
        return [f"{kind}-{i + 1}" for i in range(self._options.workers)]

    def _workers_changed(self, pids: Mapping[str, int]) -> None:
        self._owner = _replaced(self._owner, workers=dict(pids))
        self._write_owner(self._owner)

    def _write_owner(self, owner: OwnerRecord) -> None:
        """Publishes the owner; a reader of a read-only folder goes unpublished."""
        try:
            self._ownership.write(owner)
        except StoreError:
            if not self._is_reader:
                raise

    def _make_owner(self) -> OwnerRecord:
        """Returns this owner's record; it reuses a killed owner's worker token."""
        previous = self._ownership.previous
        owner = OwnerRecord(
            pid=os.getpid(),
            port=previous.port if previous else 0,
            token=secrets.token_urlsafe(24),
            worker_token=previous.worker_token if previous else secrets.token_urlsafe(24),
            serves=self._options.serves,
            started_s=time.time(),
            workers=previous.workers if previous else {},
        )
        self._write_owner(owner)
        return owner

    def _choose_port(self) -> int:
        """Returns the requested port, else a killed owner's, else 0 for any."""
        wanted, previous = self._options.port, self._ownership.previous
        try:
            require_free(wanted)
        except CliError:
            self._ownership.release(leave=previous)
            raise
        if not wanted and previous is not None and not self._is_reader:
            return previous.port if is_free(previous.port) else 0
        return wanted


def _replaced(owner: OwnerRecord, **changes: object) -> OwnerRecord:
    return msgspec.structs.replace(owner, **changes)


class _QuietFile(RotatingFileHandler):
    """A log file that drops lines on a full or read-only disk, instead of printing errors."""

    def emit(self, record: logging.LogRecord) -> None:
        """Writes the line if the file can be opened."""
        with contextlib.suppress(OSError):
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the library's name
        """Drops the line."""


def _log_to(path: Path) -> None:
    """Sends the control plane's log to a file: the terminal shows progress and results."""
    handler = _QuietFile(path, maxBytes=_LOG_BYTES, backupCount=1, delay=True)
    handler.setFormatter(formatter(os.environ))
    root = logging.getLogger("flowmesh")
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    root.propagate = False


def _port_of(url: str) -> int:
    return int(url.rpartition(":")[2])
