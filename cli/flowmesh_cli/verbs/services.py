"""``fmesh services``: what is served, by which replicas, and why these."""

from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from flowmesh_api.v1.services import (
    ServiceList,
    ServiceReasons,
    ServiceRequests,
    ServiceStatus,
)
from flowmesh_cli.attach import query_fabric
from flowmesh_cli.connection.chosen_namespace import chosen_namespace
from flowmesh_cli.connection.service_lookup import all_services, find_service
from flowmesh_cli.connection.target import Target
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.verbs.service_files import DescribedService, read_service
from flowmesh_cli.views.formatting import date, usd
from flowmesh_sdk.local_inputs import upload


def list_services(*, namespace: str, place: Target, as_json: bool) -> None:
    """Lists the services of the chosen namespace, or of all."""
    terminal = Terminal(as_json=as_json)
    with query_fabric(place) as http:
        wanted = chosen_namespace(http, namespace)
        found = all_services(http, wanted)
    if as_json:
        terminal.answer(ServiceList(found))
        return
    if not found:
        terminal.note(f"namespace {wanted} has no service" if wanted else "there are no services")
        return
    headings = ["service", "serves", "phase", "ready", "slo", "cost", "reason"]
    rows = [
        [s.name, _served(s), s.phase, replicas_text(s), _slo(s), usd(s.paid_nanousd), _reason(s)]
        for s in found
    ]
    if not wanted:
        headings, rows = with_namespaces(headings, rows, found)
    terminal.table(
        headings,
        rows,
        right="ready cost",
        cut="serves",
        optional="cost slo serves",
    )


def show_service(name: str, *, namespace: str, place: Target, as_json: bool) -> None:
    """Shows the state of a service."""
    terminal = Terminal(as_json=as_json)
    with query_fabric(place) as http:
        wanted = find_service(http, namespace, name)
        found = http.get(service_path(name), ServiceStatus, namespace=wanted)
    if as_json:
        terminal.answer(found)
        return
    terminal.text(f"service    {found.namespace}/{found.name}")
    if found.stages:
        terminal.text(f"stages     {', '.join(found.stages)}")
    else:
        terminal.text(f"model      {found.model}")
    terminal.text(f"phase      {found.phase}")
    terminal.text(f"created    {date(found.created_s)}")
    terminal.text(f"release    {found.release or 'none yet'}, generation {found.generation}")
    terminal.text(f"cost       {usd(found.paid_nanousd)}")
    for condition in found.conditions:
        text = f"{condition.status}, {condition.reason}"
        terminal.text(f"{condition.type:<10} {text}{_after(condition.message)}")
    if found.requests.scale:
        terminal.text(f"target     {scaled_target(found.requests)}")
    terminal.text(f"requests   {requests_text(found.requests)}")
    if found.best_per_s:
        terminal.text(
            f"capacity   {found.best_per_s:g} requests/s, at which some component is always busy"
        )
    for one in found.replicas:
        on = f" on {', '.join(one.workers)}" if one.workers else ""
        terminal.text(
            f"{one.component}: {one.ready} of {one.wanted} replicas ready{on}{_after(one.reason)}"
        )


def explain_service(name: str, *, namespace: str, place: Target, as_json: bool) -> None:
    """Shows why each replica of a service is where it is, or missing."""
    terminal = Terminal(as_json=as_json)
    with query_fabric(place) as http:
        wanted = find_service(http, namespace, name)
        found = http.get(service_path(name, "why"), ServiceReasons, namespace=wanted)
    if as_json:
        terminal.answer(found)
        return
    if not found.components:
        terminal.note(
            f"{found.namespace}/{found.name} has no release yet: `fmesh services show {found.name}`"
            " shows why"
        )
        return
    for one in found.components:
        limits = f"{one.least} to {one.most}" if one.most > one.least else f"{one.least}"
        terminal.text(
            f"{one.component}: {one.wanted} wanted, of {limits} replicas{_after(one.reason)}"
        )
        rows = [[r.replica or "-", r.worker or "-", r.verdict, r.reason] for r in one.replicas]
        if rows:
            terminal.table(["replica", "worker", "verdict", "reason"], rows)


def print_manifest(file: Path, *, namespace: str, place: Target) -> None:
    """Prints the object of a service's file as JSON; its code is in it, in place of file names.

    Inputs that are files here are uploaded to the cluster, and references stand in their place.

    Raises:
        CliError: the file, or one of its code, cannot be read, or an input cannot be uploaded.
        FilesError: lists what is wrong with it.
    """
    found = read_service(file, namespace)
    if found.uploads:
        _upload(found, place)
    Terminal(as_json=True).answer(found.document)


def _upload(found: DescribedService, place: Target) -> None:
    if not place.is_cluster:
        raise CliError(
            f"the input {found.uploads[0].name} is a local file: services of a cluster can read it"
            " only after it is uploaded there",
            ExitCode.USAGE,
            where=str(found.uploads[0].path),
            remedy="name the cluster: `fmesh services manifest FILE --cluster`",
        )
    inputs = found.document["spec"]["inputs"]
    with query_fabric(place) as http:
        for name, kind, path in found.uploads:
            reference = upload(http, path, kind, found.service.metadata.namespace).reference
            inputs[name][kind] = reference


def service_path(name: str, *more: str) -> str:
    """Returns the path of a service in the API, or of a part of it; a name is one segment."""
    return "/".join(("/v1/services", quote(name, safe=""), *more))


def with_namespaces(
    headings: list[str], rows: list[list[str]], services: Sequence[ServiceStatus]
) -> tuple[list[str], list[list[str]]]:
    """Returns a table of services with their namespaces as its first column."""
    named = [[one.namespace, *row] for one, row in zip(services, rows, strict=True)]
    return ["namespace", *headings], named


def _served(service: ServiceStatus) -> str:
    """Returns the model that a service answers as, or the stages of its requests."""
    if not service.stages:
        return service.model
    return f"{len(service.stages)} stages: {', '.join(service.stages)}"


def replicas_text(service: ServiceStatus) -> str:
    """Returns the ready and the wanted replicas, such as ``1/2``."""
    ready, wanted = (sum(getattr(r, n) for r in service.replicas) for n in ("ready", "wanted"))
    return f"{ready}/{wanted}"


def scaled_target(seen: ServiceRequests) -> str:
    """Returns a latency target that is a multiple of the time of a request alone."""
    known = f"{seen.latency_s * 1e3:.0f} ms" if seen.latency_s else "not measured yet"
    return f"{known}, {seen.scale:g} times a request alone"


def requests_text(seen: ServiceRequests) -> str:
    """Returns the requests of the last minutes as a sentence."""
    if not seen.came:
        return "none in the last 5 minutes"
    text = f"{seen.rate_per_s:.3g}/s; in 5 minutes {seen.came}, of which {seen.refused} refused"
    if seen.p99_s:  # else none of those that ended was answered
        text += f"; p50 {seen.p50_s * 1e3:.0f} ms, p99 {seen.p99_s * 1e3:.0f} ms"
    for missed, ended, target_s, late in (
        (seen.missed, seen.ended, seen.latency_s, "later than {}"),
        (seen.missed_ttft, seen.streamed, seen.ttft_s, "streams began after {}"),
        (seen.missed_tpot, seen.token_timed, seen.tpot_s, "streams took more than {} a token"),
    ):
        if ended and target_s:
            text += (
                f"; {missed} of {ended} {late.format(f'{target_s * 1e3:.0f} ms')}"
                f" ({missed / ended:.1%}, {100 * seen.miss_rate:.3g}% may)"
            )
    return text


def _slo(service: ServiceStatus) -> str:
    """Returns whether a service meets its SLO; ``-`` for one without targets."""
    met = (c.status for c in service.conditions if c.type == "MeetsSlo")
    return {"True": "met", "False": "missed", "Unknown": "unknown"}.get(next(met, ""), "-")


def _reason(service: ServiceStatus) -> str:
    return "; ".join(
        dict.fromkeys(c.message for c in service.conditions if c.status == "False" and c.message)
    )


def _after(text: str) -> str:
    return f": {text}" if text else ""
