"""Starts, supervises and ends the local worker processes.

They run in sessions of their own, so that Ctrl-C on the terminal reaches only ``fmesh``. When the
control process is killed they wait for the next one, which adopts them by name with everything that
they have loaded.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import psutil

from flowmesh_cli.connection.state_dir import StateDir
from flowmesh_cli.local.machine import MachineShare, shares
from flowmesh_cli.local.secrets import PREFIX

ORPHAN_TIMEOUT_S = 60
GRACE_S = 5.0
_END_TIMEOUT_S = GRACE_S + 5.0
_POLL_S = 0.2
_RESTARTS_MAX = 5
_RESTART_WINDOW_S = 60.0
_REFUSED_EXIT_CODE = 3
_TOKEN_VARIABLE = "FLOWMESH_WORKER_TOKEN"


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """Options that all local workers are started with."""

    gateway: str
    token: str
    price_usd_per_hour: Decimal | None
    store_grace_s: float


class LocalWorkers:
    """A fixed number of workers, restarted when they end."""

    def __init__(
        self,
        state: StateDir,
        options: WorkerOptions,
        names: Sequence[str],
        *,
        changed: Callable[[Mapping[str, int]], None],
        say: Callable[[str], None],
    ) -> None:
        """Starts nothing yet.

        Args:
            state: the state folder, with the workers' caches and logs.
            options: what all of them are started with.
            names: one worker each.
            changed: called with the process ids by name when they change.
            say: prints a message.
        """
        self._state = state
        self._options = options
        self._shares = dict(zip(names, shares(len(names)), strict=True))
        self._changed = changed
        self._say = say
        self._processes: dict[str, psutil.Process] = {}
        self._started: dict[str, list[float]] = {}
        self._stopping = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="workers", daemon=True)

    def start(self, left_over: Mapping[str, int]) -> None:
        """Adopts workers that a killed control process left, and starts the others."""
        for name, pid in left_over.items():
            process = _orphan(name, pid)
            if process is None:
                continue
            if name in self._shares:
                self._processes[name] = process
            else:
                _kill(process)
        for name, share in self._shares.items():
            if name not in self._processes:
                self._start(name, share)
        self._changed(self.pids())
        self._watcher.start()

    def pids(self) -> dict[str, int]:
        """Returns the process ids by name."""
        return {name: process.pid for name, process in self._processes.items()}

    def stop(self) -> None:
        """Ends the workers: SIGTERM first, SIGKILL after the timeout."""
        self._stopping.set()
        if self._watcher.is_alive():
            self._watcher.join()
        processes = list(self._processes.values())
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGTERM)
        _, alive = psutil.wait_procs(processes, timeout=_END_TIMEOUT_S)
        for process in alive:
            _kill(process)

    def kill(self) -> None:
        """Kills the workers."""
        self._stopping.set()
        for process in self._processes.values():
            _kill(process)

    def _watch(self) -> None:
        while not self._stopping.wait(_POLL_S):
            for name, process in list(self._processes.items()):
                code = _exit_code_of(process)
                if code is not None:
                    del self._processes[name]
                    self._restart(name, code)
                    self._changed(self.pids())

    def _restart(self, name: str, code: int) -> None:
        log = self._log(name)
        now = time.monotonic()
        recent = [t for t in self._started.get(name, ()) if now - t < _RESTART_WINDOW_S]
        if code == _REFUSED_EXIT_CODE or len(recent) >= _RESTARTS_MAX:
            self._say(f"worker {name} keeps ending (exit {code}) and is not restarted; see {log}")
            return
        self._say(f"worker {name} ended (exit {code}) and is restarted; see {log}")
        self._start(name, self._shares[name])

    def _start(self, name: str, share: MachineShare) -> None:
        self._started.setdefault(name, []).append(time.monotonic())
        folder = self._state.worker(name)
        folder.mkdir(parents=True, exist_ok=True)
        with self._log(name).open("ab") as log:
            self._processes[name] = psutil.Popen(
                self._command(name, share, folder),
                env={**_without_secrets(os.environ), _TOKEN_VARIABLE: self._options.token},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _command(self, name: str, share: MachineShare, folder: Path) -> list[str]:
        price = self._options.price_usd_per_hour
        given = {
            "--gateway": self._options.gateway,
            "--store": str(self._state.path),
            "--name": name,
            "--pool": "local",
            "--memory-mib": share.memory_mib,
            "--cpus": share.cpus,
            "--price-usd-per-hour": share.price_usd_per_hour if price is None else price,
            "--power-w": share.power_w,
            "--idle-w": share.idle_w,
            "--cache-dir": folder / "cache",
            "--grace": GRACE_S,
            "--orphan-timeout": ORPHAN_TIMEOUT_S,
            "--store-grace": self._options.store_grace_s,
        }
        command = [sys.executable, "-m", "flowmesh_worker", "--allow-user-code"]
        command += [part for name, value in given.items() for part in (name, str(value))]
        if price is None:
            command.append("--price-estimated")
        if not share.uses_devices:
            command.append("--cpu-only")
        return command

    def _log(self, name: str) -> Path:
        return self._state.worker(name) / "log"


def _without_secrets(given: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment without secrets: a worker gets one only with an attempt's start."""
    return {name: value for name, value in given.items() if not name.startswith(PREFIX)}


def end_left_over(workers: Mapping[str, int]) -> None:
    """Kills orphaned workers that cannot reach this control process (its port differs)."""
    for name, pid in workers.items():
        process = _orphan(name, pid)
        if process is not None:
            _kill(process)


def _orphan(name: str, pid: int) -> psutil.Process | None:
    """Returns the process if it is still this worker, and not another that got its pid."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        command = process.cmdline()
        is_ours = "flowmesh_worker" in command and command[command.index("--name") + 1] == name
        if is_ours and process.status() != psutil.STATUS_ZOMBIE:
            return process
    return None


def _exit_code_of(process: psutil.Process) -> int | None:
    """Returns the exit code of an ended process (-1 if it is not a child), else None."""
    try:
        code = process.wait(timeout=0)
    except psutil.TimeoutExpired:
        return None
    except psutil.NoSuchProcess:
        return -1
    return -1 if code is None else int(code)


def _kill(process: psutil.Process) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        process.kill()
