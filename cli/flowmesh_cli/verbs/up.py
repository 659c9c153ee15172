"""``fmesh up``: serves a local fabric until it is stopped."""

import os
import signal
import threading
from collections.abc import Sequence
from pathlib import Path

from flowmesh_api.v1.enums import ENDED_PHASES
from flowmesh_cli.attach import FabricSession, attach_here, running
from flowmesh_cli.connection.client import ApiClient, FabricUnavailableError
from flowmesh_cli.connection.run_lookup import all_runs
from flowmesh_cli.connection.state_dir import state_dir as state_of
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.interrupts import leave
from flowmesh_cli.local.options import (
    CollectionOptions,
    LocalOptions,
    price,
    tenant_weights,
)
from flowmesh_cli.terminal import Terminal
from flowmesh_core.errors import FlowMeshError

_POLL_S = 0.5
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


def serve(
    *,
    workers: int,
    price_usd_per_hour: str | None,
    weights: Sequence[str] | None,
    collection: CollectionOptions,
    port: int,
    state_dir: Path | None,
    as_json: bool,
) -> None:
    """Serves until SIGINT or SIGTERM; the next fabric resumes unfinished runs.

    With ``as_json`` it prints address, pid and folder once it serves.
    """
    terminal = Terminal(as_json=as_json)
    state = state_of(state_dir)
    owner = running(state)
    if owner is not None:
        raise CliError(
            f"process {owner.pid} already serves this folder, at {owner.url}",
            ExitCode.USAGE,
            where=str(state.path),
            remedy="use it with `fmesh submit`, or choose another folder with --state-dir",
        )
    stop, sessions = threading.Event(), list[FabricSession]()
    for number in _SIGNALS:
        signal.signal(number, lambda *_: _stop(stop, sessions))
    options = LocalOptions(
        "up",
        workers,
        price(price_usd_per_hour),
        port=port,
        say=terminal.note,
        weights=tenant_weights(weights),
        collection=collection.settings(),
    )
    with attach_here(state_dir, options) as session:
        sessions.append(session)
        if session.fabric is None:
            raise CliError(
                "another fmesh started to serve this folder at the same time",
                ExitCode.USAGE,
                where=str(state.path),
            )
        if as_json:
            served = {"url": session.http.url, "pid": os.getpid(), "state_dir": str(state.path)}
            terminal.answer(served)
        terminal.note(f"serving {state.path} at {session.http.url}; Ctrl-C stops")
        terminal.note("submit work with `fmesh submit FILE`, show it with `fmesh status`")
        while not stop.wait(_POLL_S):
            if session.fabric.failure:
                raise FabricUnavailableError(session.http.url, session.fabric.failure)
        resumption = "; the next `fmesh up` or `fmesh run` resumes unfinished runs"
        terminal.note("stopping" + (resumption if has_unfinished_runs(session.http) else ""))
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # one that comes later changes nothing


def has_unfinished_runs(http: ApiClient) -> bool:
    """Returns whether a run has not ended; True where the fabric does not answer."""
    try:
        return any(run.phase not in ENDED_PHASES for run in all_runs(http))
    except FlowMeshError:
        return True


def _stop(stop: threading.Event, sessions: list[FabricSession]) -> None:
    """Stops in order at the first signal; kills the workers and exits at the second."""
    if not stop.is_set():
        stop.set()
        return
    for session in sessions:
        session.abandon()
    leave(ExitCode.OK, "exited at once")
