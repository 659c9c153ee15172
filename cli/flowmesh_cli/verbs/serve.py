"""``fmesh serve``: keeps models and services loaded, and answers clients until it is stopped."""

import json
import re
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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
from flowmesh_cli.verbs.service_files import is_service_file, read_service
from flowmesh_core.spec.quantities import byte_count, seconds
from flowmesh_core.stages.service_graph import LoadedGraph
from flowmesh_serving.service_table import DEFAULT_TIMEOUT_S, ServiceEntry

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
    """Serves models, and services of files, until SIGINT or SIGTERM.

    Raises:
        CliError: one cannot be served, or another process serves this folder.
    """
    offers = [_offer(model, namespace, dtype) for model in models]
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
            _Serving(terminal, session, router, stop).run(offers)
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


@dataclass(frozen=True, slots=True)
class _Offer:
    """A service of this command.

    Attributes:
        document: what is applied.
        entry: what the router offers.
        path: where it takes requests, below the base URL.
        example: a request.
    """

    document: dict[str, Any]
    entry: ServiceEntry
    path: str
    example: dict[str, Any]

    @property
    def namespace(self) -> str:
        return self.entry.service.partition("/")[0]

    @property
    def name(self) -> str:
        return self.entry.service.partition("/")[2]


def _offer(given: str, namespace: str, dtype: str) -> _Offer:
    """Returns the service of a model, or of a file.

    Raises:
        CliError: the file cannot be read, or is not a service.
    """
    if not is_service_file(given):
        namespace = namespace or _DEFAULT_NAMESPACE
        document = service_document(given, namespace, dtype)
        model = model_name(given)
        entry = ServiceEntry(f"{namespace}/{service_name(given)}", model)
        return _Offer(document, entry, "/chat/completions", _chat(model))
    found = read_service(Path(given), namespace)
    metadata, spec = found.service.metadata, found.service.spec
    model = spec.openai.model if spec.openai is not None else metadata.name
    service = f"{metadata.namespace}/{metadata.name}"
    if found.graph is None:
        return _Offer(
            found.document, ServiceEntry(service, model), "/chat/completions", _chat(model)
        )
    limits, slo = spec.limits, spec.slo
    entry = ServiceEntry(
        service,
        model,
        timeout_s=seconds(limits.timeout) if limits.timeout else DEFAULT_TIMEOUT_S,
        in_flight_max=limits.max_in_flight,
        graph=found.graph,
        slo_s=seconds(slo.latency) if slo.latency else 0.0,
        on_late=slo.on_late,
        request_bytes_max=byte_count(limits.max_request_bytes),
        max_in_flight=limits.max_in_flight,
    )
    example = dict.fromkeys(LoadedGraph(found.graph).request_fields, "...")
    return _Offer(found.document, entry, f"/services/{service}:invoke", example)


def _chat(model: str) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": "Hello!"}]}


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

    def run(self, offers: Sequence["_Offer"]) -> None:
        applied: list[_Offer] = []
        try:
            for offer in offers:
                application = ServiceApplication(offer.document)
                self._http.ask("POST", "/v1/services", ServiceStatus, document=application)
                applied.append(offer)
            found = self._router.start([offer.entry for offer in offers])
            if all(self._is_ready(o.entry.model, o.name, o.namespace) for o in offers):
                self._show(found, offers)
                self._watch()
        finally:
            for offer in applied:
                self._delete(offer.name, offer.namespace)

    def _is_ready(self, model: str, name: str, namespace: str) -> bool:
        """Waits until a replica takes calls; returns False if the command is stopped before."""
        shown, began_s = "", time.monotonic()
        while not self._stop.is_set():
            self._check()
            status = self._http.get(f"/v1/services/{name}", ServiceStatus, namespace=namespace)
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

    def _show(self, found: Endpoint, offers: Sequence["_Offer"]) -> None:
        if self._terminal.as_json:
            self._terminal.answer({"base_url": found.url, "tokens": found.tokens})
            return
        for offer in offers:
            model = offer.entry.model
            token = found.tokens[model]
            self._terminal.text(f"model     {model}")
            self._terminal.text(f"base_url  {found.url}")
            self._terminal.text(f"api_key   {token}")
            self._terminal.text(
                f"curl {found.url}{offer.path} -H 'Authorization: Bearer {token}'"
                f" -H 'Content-Type: application/json' -d '{json.dumps(offer.example)}'"
            )
        self._terminal.note("Ctrl-C stops")

    def _watch(self) -> None:
        while not self._stop.wait(_POLL_S):
            self._check()
            code = self._router.restart_if_ended()
            if code is not None:
                self._terminal.note(f"the router ended (exit {code}) and is started again")

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
