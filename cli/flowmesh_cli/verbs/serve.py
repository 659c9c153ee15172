"""``fmesh serve``: keeps models and services loaded, and answers clients until it is stopped."""

import contextlib
import json
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from flowmesh_api.v1.services import (
    RouterReportTaken,
    ServiceApplication,
    ServiceDeleted,
    ServiceStatus,
)
from flowmesh_cli.attach import FabricSession, attach_here
from flowmesh_cli.connection.client import ApiClient, FabricUnavailableError
from flowmesh_cli.connection.state_dir import state_dir as state_of
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.interrupts import leave
from flowmesh_cli.local.options import LocalOptions
from flowmesh_cli.local.ports import require_free
from flowmesh_cli.local.router import Endpoint, LocalRouter
from flowmesh_cli.local.tool_parsers import tool_parser_names
from flowmesh_cli.nearness import nearest
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.verbs.preflight import refuse_services_that_no_worker_here_can_run
from flowmesh_cli.verbs.service_document import refused_model
from flowmesh_cli.verbs.service_offers import ServeOptions, ServiceOffer, offers_of
from flowmesh_core.catalog.adapter_ports import adapted_model
from flowmesh_core.errors import SpecError
from flowmesh_sdk.local_inputs import upload

_POLL_S = 0.5
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_READY, _FAILED = "Ready", "Failed"
_CODE_FAILURES_MAX = 2
"""What could not be loaded so often in a row will not: a first failure may be the machine's."""


def serve(
    chosen: ServeOptions, *, workers: int, port: int, state_dir: Path | None, as_json: bool
) -> None:
    """Serves models, and services of files, until SIGINT or SIGTERM.

    Raises:
        CliError: one cannot be served, or another process serves this folder or uses the port.
    """
    _require_tool_parser(chosen)
    require_free(port)
    offers = offers_of(chosen)
    refuse_services_that_no_worker_here_can_run(offers)
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
            if not session.is_owner and (unused := options.unused_text()):
                terminal.note(unused)
            _Serving(terminal, session, router, stop).run(offers)
            terminal.note("stopping")
    finally:
        router.stop()
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # one that comes later changes nothing


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

    def run(self, offers: Sequence[ServiceOffer]) -> None:
        applied: list[ServiceOffer] = []
        try:
            for offer in offers:
                self._apply(offer)
                applied.append(offer)
            found = self._router.start([offer.entry for offer in offers])
            if all(self._is_ready(o.entry.model, o.name, o.namespace) for o in offers):
                self._show(found, offers)
                self._watch(offers)
        finally:
            for offer in applied:
                self._delete(offer.name, offer.namespace)

    def _apply(self, offer: ServiceOffer) -> None:
        uploads = {}
        for name, kind, path in offer.uploads:
            self._terminal.note(f"{path}: uploading")
            uploads[name] = upload(self._http, path, kind, offer.namespace).reference
        application = ServiceApplication(offer.document, uploads=uploads)
        try:
            self._http.ask("POST", "/v1/services", ServiceStatus, document=application)
        except SpecError as error:
            raise (refused_model(offer.model, error) if offer.model else error) from error

    def _is_ready(self, model: str, name: str, namespace: str) -> bool:
        """Waits until a replica takes calls; returns False if the command is stopped before."""
        shown, last_reason, began_s = "", "", time.monotonic()
        while not self._stop.is_set():
            self._check()
            status = self._status(name, namespace)
            if status.phase == _READY:
                self._terminal.note(f"{model}: ready after {time.monotonic() - began_s:.0f} s")
                return True
            reason = waits_for(status)
            last_reason = reason or last_reason
            if status.phase == _FAILED:
                raise CliError(
                    reason or "its model cannot be loaded",
                    ExitCode.REFUSED,
                    where=model,
                    remedy=f"`fmesh logs` shows more; files are in {self._session.state.path}",
                )
            if any(r.code_failures >= _CODE_FAILURES_MAX for r in status.replicas):
                raise CliError(
                    last_reason or "its code, model or adapter cannot be used",
                    ExitCode.REFUSED,
                    where=model,
                    remedy="correct the code, the model or the adapter, then serve it again",
                )
            text = f"{model}: {status.phase.lower()}{f', {reason}' if reason else ''}"
            if text != shown:
                self._terminal.note(text)
                shown = text
            self._stop.wait(_POLL_S)
        return False

    def _show(self, found: Endpoint, offers: Sequence[ServiceOffer]) -> None:
        if self._terminal.as_json:
            self._terminal.answer(
                {"base_url": found.url, "tokens": found.tokens, "invoke": found.invoke}
            )
            return
        for offer in offers:
            model = offer.entry.model
            token = found.tokens[model]
            if model in found.invoke:
                self._terminal.text(f"service   {offer.entry.service}")
                self._terminal.text(f"url       {found.invoke[model]}")
            if model not in found.invoke or offer.entry.chat is not None:
                self._terminal.text(f"model     {model}")
                for name in offer.entry.adapters:
                    self._terminal.text(f"adapter   {adapted_model(model, name)}")
                self._terminal.text(f"base_url  {found.url}")
            self._terminal.text(f"api_key   {token}")
            self._terminal.text(
                f"curl {found.url}{offer.path} -H 'Authorization: Bearer {token}'"
                f" -H 'Content-Type: application/json' -d '{json.dumps(offer.example)}'"
            )
        self._terminal.note("Ctrl-C stops")

    def _status(self, name: str, namespace: str) -> ServiceStatus:
        """Returns the status of a service; its router learns what is planned for it."""
        status = self._http.get(f"/v1/services/{name}", ServiceStatus, namespace=namespace)
        placed = {i: worker for r in status.replicas for i, worker in r.placed.items()}
        self._router.update(f"{namespace}/{name}", placed, status.requests.latency_s)
        return status

    def _watch(self, offers: Sequence[ServiceOffer]) -> None:
        while not self._stop.wait(_POLL_S):
            self._check()
            code = self._router.restart_if_ended()
            if code is not None:
                self._terminal.note(f"the router ended (exit {code}) and is started again")
            for offer in offers:
                with contextlib.suppress(CliError):  # it is away, and what was placed holds
                    self._status(offer.name, offer.namespace)
            self._report()

    def _report(self) -> None:
        """Passes the router's newest report to the control plane; a lost one is made up later."""
        report = self._router.report()
        if report is not None:
            with contextlib.suppress(CliError):
                self._http.ask("POST", "/v1/router", RouterReportTaken, document=report)

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


def _require_tool_parser(chosen: ServeOptions) -> None:
    if not chosen.tool_parser:
        return
    if chosen.embeddings:
        raise CliError(
            "models that answer embeddings call no tools",
            ExitCode.USAGE,
            where="--tool-parser",
            remedy="leave out one of --tool-parser and --embeddings",
        )
    known = tool_parser_names()
    if known and chosen.tool_parser not in known:
        raise CliError(
            f"vLLM has no tool parser {chosen.tool_parser!r}{nearest(chosen.tool_parser, known)}",
            ExitCode.USAGE,
            where="--tool-parser",
            remedy=f"it has {', '.join(known)}",
        )


def waits_for(status: ServiceStatus) -> str:
    """Returns what a service waits for, or why it has failed."""
    messages = [c.message for c in status.conditions if c.status == "False" and c.message]
    return "; ".join(dict.fromkeys(messages or [r.reason for r in status.replicas if r.reason]))


def _stop(stop: threading.Event, sessions: list[FabricSession]) -> None:
    """Stops in order at the first signal; kills the workers and exits at the second."""
    if not stop.is_set():
        stop.set()
        return
    for session in sessions:
        session.abandon()
    leave(ExitCode.OK, "exited at once")
