"""``fmesh serve``: keeps models loaded and answers OpenAI's clients until it is stopped."""

import contextlib
import json
import re
import signal
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from flowmesh_api.v1.services import ServiceApplication, ServiceDeleted, ServiceStatus
from flowmesh_cli.attach import FabricSession, attach_here
from flowmesh_cli.connection.client import ApiClient, FabricUnavailableError
from flowmesh_cli.connection.state_dir import state_dir as state_of
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.interrupts import leave
from flowmesh_cli.local.options import LocalOptions
from flowmesh_cli.local.router import Endpoint, LocalRouter
from flowmesh_cli.terminal import Terminal

_POLL_S = 0.5
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_NAME_CHARS = 50
_DEFAULT_NAMESPACE = "default"
_READY, _FAILED = "Ready", "Failed"


def serve(
    models: Sequence[str],
    *,
    namespace: str,
    dtype: str,
    workers: int,
    port: int,
    state_dir: Path | None,
    as_json: bool,
) -> None:
    """Serves models until SIGINT or SIGTERM.

    Raises:
        CliError: a model cannot be served, or another process serves this folder.
    """
    terminal = Terminal(as_json=as_json)
    stop, sessions = threading.Event(), list[FabricSession]()
    for number in _SIGNALS:
        signal.signal(number, lambda *_: _stop(stop, sessions))
    state = state_of(state_dir)
    state.prepare()
    router = LocalRouter(state, port)
    try:
        options = LocalOptions("up", workers, say=terminal.note)
        with attach_here(state_dir, options) as session:
            sessions.append(session)
            _Serving(terminal, session, router, stop).run(models, namespace, dtype)
            terminal.note("stopping")
    finally:
        router.stop()
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # one that comes later changes nothing


def service_document(model: str, namespace: str, dtype: str) -> dict[str, Any]:
    """Returns the service of one model."""
    component: dict[str, Any] = {"uses": "llm.generate", "inputs": {"model": "inputs.base"}}
    if dtype:
        component["with"] = {"dtype": dtype}
    return {
        "apiVersion": "flowmesh.dev/v1alpha1",
        "kind": "FlowMeshService",
        "metadata": {"name": service_name(model), "namespace": namespace},
        "spec": {
            "inputs": {"base": {"model": model}},
            "components": {"llm": component},
            "openai": {"model": model_name(model)},
        },
    }


def model_name(model: str) -> str:
    """Returns a model's name in requests: without the scheme and the revision."""
    return re.sub(r"^[a-z0-9]+://", "", model).partition("@")[0]


def service_name(model: str) -> str:
    """Returns a service's name: lower case, digits and hyphens."""
    text = re.sub(r"[^a-z0-9]+", "-", model_name(model).lower()).strip("-")
    return f"m-{text}"[:_NAME_CHARS].strip("-") if not text[:1].isalpha() else text[:_NAME_CHARS]


class _Serving:
    """The services of one command."""

    def __init__(
        self,
        terminal: Terminal,
        session: FabricSession,
        router: LocalRouter,
        stop: threading.Event,
    ) -> None:
        self._terminal = terminal
        self._session = session
        self._router = router
        self._stop = stop

    @property
    def _http(self) -> ApiClient:
        return self._session.http

    def run(self, models: Sequence[str], namespace: str, dtype: str) -> None:
        namespace = namespace or _DEFAULT_NAMESPACE
        names = {model_name(m): service_name(m) for m in models}
        try:
            for model in models:
                application = ServiceApplication(service_document(model, namespace, dtype))
                self._http.ask("POST", "/v1/services", ServiceStatus, document=application)
            found = self._router.start({m: f"{namespace}/{n}" for m, n in names.items()})
            if all(self._is_ready(model, name, namespace) for model, name in names.items()):
                self._show(found)
                self._watch(names.values(), namespace)
        finally:
            for name in names.values():
                self._delete(name, namespace)

    def _is_ready(self, model: str, name: str, namespace: str) -> bool:
        """Waits until a replica takes calls; returns False if the command is stopped before."""
        shown, began_s = "", time.monotonic()
        while not self._stop.is_set():
            self._check()
            status = self._status(name, namespace)
            if status.phase == _READY:
                self._terminal.note(f"{model}: ready after {time.monotonic() - began_s:.0f} s")
                return True
            reason = _reason(status)
            if status.phase == _FAILED:
                raise CliError(
                    reason or "its model cannot be loaded",
                    ExitCode.REFUSED,
                    where=model,
                    remedy=f"`fmesh logs` shows more; files are in {self._session.state.path}",
                )
            text = f"{model}: {status.phase.lower()}{f', {reason}' if reason else ''}"
            if text != shown:
                self._terminal.note(text)
                shown = text
            self._stop.wait(_POLL_S)
        return False

    def _show(self, found: Endpoint) -> None:
        if self._terminal.as_json:
            self._terminal.answer({"base_url": found.url, "tokens": found.tokens})
            return
        for model, token in found.tokens.items():
            body = {"model": model, "messages": [{"role": "user", "content": "Hello!"}]}
            self._terminal.text(f"model     {model}")
            self._terminal.text(f"base_url  {found.url}")
            self._terminal.text(f"api_key   {token}")
            self._terminal.text(
                f"curl {found.url}/chat/completions -H 'Authorization: Bearer {token}'"
                f" -H 'Content-Type: application/json' -d '{json.dumps(body)}'"
            )
        self._terminal.note("Ctrl-C stops")

    def _status(self, name: str, namespace: str) -> ServiceStatus:
        """Returns the status of a service; its router learns where its replicas are placed."""
        status = self._http.get(f"/v1/services/{name}", ServiceStatus, namespace=namespace)
        placed = {i: worker for r in status.replicas for i, worker in r.placed.items()}
        self._router.place(f"{namespace}/{name}", placed)
        return status

    def _watch(self, names: Collection[str], namespace: str) -> None:
        while not self._stop.wait(_POLL_S):
            self._check()
            code = self._router.restart_if_ended()
            if code is not None:
                self._terminal.note(f"the router ended (exit {code}) and is started again")
            for name in names:
                with contextlib.suppress(CliError):  # it is away, and what was placed holds
                    self._status(name, namespace)

    def _check(self) -> None:
        fabric = self._session.fabric
        if fabric is not None and fabric.failure:
            raise FabricUnavailableError(self._http.url, fabric.failure)

    def _delete(self, name: str, namespace: str) -> None:
        path, query = f"/v1/services/{name}", {"namespace": namespace}
        try:
            self._http.ask("DELETE", path, ServiceDeleted, query=query)
        except CliError as error:
            if error.code not in (ExitCode.NOT_FOUND, ExitCode.NO_FABRIC):
                raise


def _reason(status: ServiceStatus) -> str:
    """Returns what a service waits for, or why it has failed."""
    reasons: Mapping[str, None] = dict.fromkeys(
        [r.reason for r in status.replicas if r.reason]
        + [c.message for c in status.conditions if c.status != "True" and c.message]
    )
    return "; ".join(reasons)


def _stop(stop: threading.Event, sessions: list[FabricSession]) -> None:
    """Stops in order at the first signal; kills the workers and exits at the second."""
    if not stop.is_set():
        stop.set()
        return
    for session in sessions:
        session.abandon()
    leave(ExitCode.OK, "exited at once")
