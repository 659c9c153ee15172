"""The router of a local fabric: a child process of ``fmesh serve``, one per state folder.

::

    .flowmesh/serving/lock           locked by the `fmesh serve` that has the router
    .flowmesh/serving/services.json  what the router offers; tokens are in it as hashes only
    .flowmesh/serving/endpoint.json  address and tokens, for `fmesh call` and `fmesh load`
    .flowmesh/serving/reports.json   what the router has counted, for the control plane
    .flowmesh/serving/router.log     what the router prints
"""

import contextlib
import fcntl
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from flowmesh_cli.connection.state_dir import StateDir
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_core.decoding import decode
from flowmesh_core.protocol.router_reports import RouterReport
from flowmesh_core.protocol.router_services import ServiceEntry, ServiceToken, token_hash
from flowmesh_serving.service_file import write_services
from flowmesh_worker.ipc.host_directory import socket_folder

_START_WITHIN_S = 60.0
_END_WITHIN_S = 10.0
_POLL_S = 0.05
_TOKEN_BYTES = 24
_SOCKET = "hubs.sock"
_REPORTS = "reports.json"


class Endpoint(msgspec.Struct, frozen=True):
    """Where the models of a state folder are served.

    Attributes:
        url: the base URL for OpenAI's clients.
        tokens: by model.
        invoke: where services with stages take requests, by model.
        services: ``namespace/name`` by model.
    """

    url: str
    tokens: dict[str, str]
    invoke: dict[str, str] = {}
    services: dict[str, str] = {}


_endpoints = msgspec.json.Decoder(Endpoint)
_reports = msgspec.json.Decoder(RouterReport)


def hub_socket(state: Path) -> Path:
    """Returns the socket on which workers' hubs reach the router of a state folder."""
    return socket_folder(state / "serving") / _SOCKET


def endpoint(state: StateDir) -> Endpoint:
    """Returns where the models of a state folder are served.

    Raises:
        CliError: nothing serves it.
    """
    try:
        return decode(_endpoints, _folder(state).joinpath("endpoint.json").read_bytes())
    except (OSError, msgspec.DecodeError) as e:
        raise CliError(
            "no model is served from this folder",
            ExitCode.NO_FABRIC,
            where=str(state.path),
            remedy="serve one with `fmesh serve MODEL`, and call it once it prints its base_url",
        ) from e


class LocalRouter:
    """A router process, restarted on its port when it ends by itself."""

    def __init__(self, state: StateDir, port: int) -> None:
        """Locks the folder.

        Args:
            state: the state folder.
            port: for clients; 0 for any.

        Raises:
            CliError: another process serves models from this folder.
        """
        self._folder = _folder(state)
        self._folder.mkdir(mode=0o700, exist_ok=True)
        self._socket = hub_socket(state.path)
        self._port = port
        self._process: subprocess.Popen[bytes] | None = None
        self._entries: tuple[ServiceEntry, ...] = ()
        self._reported_ns = 0
        self._lock = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise CliError(
                "another `fmesh serve` serves models from this folder",
                ExitCode.USAGE,
                where=str(state.path),
                remedy="name all models in one command, or choose another --state-dir",
            ) from None
        self.url = ""

    def start(self, services: Sequence[ServiceEntry]) -> Endpoint:
        """Starts the router with a new token for each service.

        Args:
            services: without tokens.

        Raises:
            CliError: it does not start.
        """
        _private_folder(self._socket.parent)
        tokens = {s.model: f"fm-{secrets.token_urlsafe(_TOKEN_BYTES)}" for s in services}
        self._entries = tuple(_with_token(service, tokens[service.model]) for service in services)
        write_services(self._folder / "services.json", self._entries)
        (self._folder / _REPORTS).unlink(missing_ok=True)  # of an earlier router
        self._spawn()
        base = f"{self.url}/v1"
        staged = (s for s in services if s.graph is not None)
        invoke = {s.model: f"{base}/services/{s.service}:invoke" for s in staged}
        found = Endpoint(base, tokens, invoke, {s.model: s.service for s in services})
        target = self._folder / "endpoint.json"
        target.unlink(missing_ok=True)
        target.touch(mode=0o600)
        target.write_bytes(msgspec.json.format(msgspec.json.encode(found)) + b"\n")
        return found

    def update(self, service: str, placed: dict[str, str], slo_s: float) -> None:
        """Passes the router what the control plane has planned for a service.

        Args:
            service: ``namespace/name``.
            placed: by replica id, the worker: hubs are believed about no others.
            slo_s: when a reply is late; 0 for never, and before it is measured.
        """
        before = self._entries
        self._entries = tuple(
            msgspec.structs.replace(e, placed=placed, slo_s=slo_s) if e.service == service else e
            for e in before
        )
        if self._entries != before:
            write_services(self._folder / "services.json", self._entries)

    def report(self) -> RouterReport | None:
        """Returns the router's newest report; None where there is none since the last time."""
        path = self._folder / _REPORTS
        try:
            written_ns = path.stat().st_mtime_ns
            if written_ns == self._reported_ns:
                return None
            found = decode(_reports, path.read_bytes())
        except (OSError, msgspec.DecodeError):  # not yet, or of another release: the next one
            return None
        self._reported_ns = written_ns
        return found

    def restart_if_ended(self) -> int | None:
        """Starts the router again on the same port if it has ended; returns its exit code then."""
        code = self._process.poll() if self._process is not None else None
        if code is not None:
            self._spawn()
        return code

    def stop(self) -> None:
        """Ends the router and unlocks the folder."""
        self._folder.joinpath("endpoint.json").unlink(missing_ok=True)
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(_END_WITHIN_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        os.close(self._lock)

    def _spawn(self) -> None:
        ready = self._folder / "url"
        ready.unlink(missing_ok=True)
        with (self._folder / "router.log").open("ab") as log:
            self._process = subprocess.Popen(
                self._command(ready),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        end_s = time.monotonic() + _START_WITHIN_S
        while not ready.exists():
            if self._process.poll() is not None or time.monotonic() > end_s:
                raise CliError(
                    "the router did not start",
                    ExitCode.INTERNAL,
                    where=str(self._folder / "router.log"),
                    remedy="the last lines of this log say why",
                )
            time.sleep(_POLL_S)
        self.url = ready.read_text()
        self._port = int(self.url.rpartition(":")[2])

    def _command(self, ready: Path) -> list[str]:
        given = {
            "--port": self._port,
            "--hubs": self._socket,
            "--services": self._folder / "services.json",
            "--ready-file": ready,
            "--reports": self._folder / _REPORTS,
            "--parent": os.getpid(),
        }
        options = [part for name, value in given.items() for part in (name, str(value))]
        return [sys.executable, "-m", "flowmesh_serving.router", "--stage-times", *options]


def _with_token(service: ServiceEntry, token: str) -> ServiceEntry:
    known = ServiceToken(token_hash(token), service.service.partition("/")[0])
    return msgspec.structs.replace(service, tokens=(known,), created_s=time.time(), placed={})


def _folder(state: StateDir) -> Path:
    return state.path / "serving"


def _private_folder(path: Path) -> None:
    """Creates a folder that only this user may enter.

    Raises:
        CliError: another user owns it.
    """
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    found = path.stat()
    if found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise CliError(
            "the folder of the router's socket belongs to another user, or others may enter it",
            ExitCode.USAGE,
            where=str(path),
            remedy="remove it, or choose a --state-dir with a shorter path",
        )
