"""``fmesh plan``: what workflows would take, by what is published and what was learned."""

import time

import msgspec
import typer

from flowmesh_cli import figures
from flowmesh_cli.attaching import attach
from flowmesh_cli.chosen import Chosen
from flowmesh_cli.client import Http
from flowmesh_cli.exits import ExitCode
from flowmesh_cli.failing import FilesError
from flowmesh_cli.local.options import PLANNER, LocalOptions
from flowmesh_cli.place import Place
from flowmesh_cli.running import checked
from flowmesh_cli.sources import Source
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.uploading import upload_inputs
from flowmesh_control.planner import Forecast, PlannedStep
from flowmesh_core.errors import SpecError
from flowmesh_core.status.view import WorkerStatus

_WORKERS_WITHIN_S = 20.0
_POLL_S = 0.1


def plan_files(chosen: Chosen, *, place: Place, as_json: bool) -> None:
    """Forecasts workflows; ends with ``REFUSED`` where a budget or deadline cannot be met."""
    terminal = Terminal(as_json=as_json)
    sources = checked(chosen)
    with attach(place, LocalOptions("read", workers=1, say=terminal.note)) as session:
        if not place.is_cluster:  # whose pools may grow from zero
            _wait_for_workers(session.http)
        forecasts = [_forecast(session.http, source) for source in sources.workflows]
    if as_json:
        terminal.answer(forecasts)
    else:
        for forecast in forecasts:
            _show(terminal, forecast)
    refusals = [f"{f.namespace}/{f.name}: {r}" for f in forecasts for r in f.refusals]
    for refusal in refusals:
        terminal.note(f"refused: {refusal}")
    if refusals:
        raise typer.Exit(ExitCode.REFUSED)


def _wait_for_workers(http: Http) -> None:
    """A forecast needs somebody to forecast for."""
    end = time.monotonic() + _WORKERS_WITHIN_S
    while not http.get("/v1/workers", list[WorkerStatus]) and time.monotonic() < end:
        time.sleep(_POLL_S)


def _forecast(http: Http, source: Source) -> Forecast:
    upload_inputs(http, source)
    document = {"document": source.document.value, "uploads": source.uploads}
    try:
        answer = http.call("POST", "/v1/plan", document=document)
    except SpecError as e:
        raise FilesError(source.lines(e.problems)) from None
    return msgspec.json.decode(answer, type=Forecast)


def _show(terminal: Terminal, forecast: Forecast) -> None:
    terminal.text(f"{forecast.namespace}/{forecast.name} (looks in {', '.join(forecast.scopes)})")
    headings = [
        "step",
        "engine",
        "expect",
        "actions",
        "hits",
        "batches",
        "cost",
        "time",
        "sure",
        "",
    ]
    rows = [_row(step) for step in forecast.steps]
    terminal.table(headings, rows, right="actions hits batches cost time")
    sure = "no figure is known yet" if forecast.error >= 1 else f"give or take {forecast.error:.0%}"
    unknown = (
        f"; {figures.count(forecast.unknown, 'step')} not known yet" if forecast.unknown else ""
    )
    terminal.text(
        f"  {figures.count(forecast.actions, 'known action')}, "
        f"{figures.count(forecast.hits, 'hit')}, "
        f"{figures.usd(forecast.nanousd, estimated=True)}, ~{figures.seconds(forecast.seconds)}, "
        f"{figures.joules(forecast.joules, estimated=True)} ({sure}{unknown})"
    )


def _row(step: PlannedStep) -> list[str]:
    runs = step.expect not in ("hit", "skip")
    return [
        step.path,
        step.engine,
        step.expect,
        str(step.actions or "-"),
        str(step.hits or "-"),
        str(step.batches or "-"),
        figures.usd(step.nanousd, estimated=True) if runs else "-",
        f"~{figures.seconds(step.seconds)}" if runs else "-",
        step.sure,
        step.detail or place(step.worker),
    ]


def place(worker: str) -> str:
    """The worker that it would go to; the one that only answers this question has no name."""
    if worker.startswith(f"{PLANNER}-"):
        return "on a local worker"
    return f"on {worker}" if worker else ""
