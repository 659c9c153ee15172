"""``fmesh plan``: predicts hits, cost and time from published results and learned costs."""

from collections.abc import Sequence

import typer

from flowmesh_api.v1.fabric import CachePolicy
from flowmesh_api.v1.plan import GUESS, Forecast, PlannedStep
from flowmesh_cli.attach import attach
from flowmesh_cli.connection.target import Target
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.local.options import PLANNER, LocalOptions
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.verbs.forecast import RUNS_NOTHING, forecast
from flowmesh_cli.verbs.plan_batch import plan_batch, show_quotes
from flowmesh_cli.verbs.preflight import (
    refuse_batch_that_no_worker_here_can_run,
    refuse_what_no_worker_here_can_run,
)
from flowmesh_cli.verbs.resolve_sources import Resolved, resolve_sources
from flowmesh_cli.verbs.run import checked, wait_for_workers
from flowmesh_cli.views import formatting
from flowmesh_cli.views.sharing import shared_scope, sharing_text
from flowmesh_cli.workflows.selection import WorkflowSelection
from flowmesh_core.graph.external import RESOLVE
from flowmesh_core.sharing.scopes import is_shared

UNKNOWN = "?"
"""Shown in place of a value that is not based on a measurement."""


def plan_files(chosen: WorkflowSelection, *, resolves: bool, place: Target, as_json: bool) -> None:
    """Shows forecasts; exits with ``REFUSED`` where a budget or deadline cannot be met.

    Args:
        chosen: the workflows.
        resolves: whether to ask hubs and buckets what the inputs' addresses mean now.
        place: the fabric.
        as_json: whether to answer in JSON.
    """
    terminal = Terminal(as_json=as_json)
    sources = checked(chosen)
    refuse_what_no_worker_here_can_run(sources, place)
    with attach(place, LocalOptions("read", workers=1, say=terminal.note)) as session:
        if not place.is_cluster:  # a cluster's pools may grow from zero
            wait_for_workers(session.http)
        resolved = [
            resolve_sources(session.http, source, is_local=not place.is_cluster)
            if resolves
            else Resolved()
            for source in sources.workflows
        ]
        forecasts = [
            found.sized(forecast(session.http, source, found.pins))
            for source, found in zip(sources.workflows, resolved, strict=True)
        ]
        policies = session.http.where_allowed("/v1/policies", list[CachePolicy])
    if as_json:
        terminal.answer(forecasts)
    else:
        for forecasted in forecasts:
            show(terminal, forecasted, policies)
    for note in [note for found in resolved for note in found.unresolved]:
        terminal.note(note)
    refusals = [
        line
        for source, found in zip(sources.workflows, forecasts, strict=True)
        for line in source.unmeetable("; ".join(found.refusals)).lines
        if found.refusals
    ]
    for refusal in refusals:
        terminal.note(f"refused: {refusal}")
    if refusals:
        raise typer.Exit(ExitCode.REFUSED)


def plan_batches(
    chosen: WorkflowSelection, *, resolves: bool, place: Target, as_json: bool
) -> None:
    """Shows forecasts and quotes of files of OpenAI's requests.

    Raises:
        CliError: a file is not one, options for workflows are given, or no worker of this
            installation can answer it.
    """
    if chosen.namespaces or chosen.settings or chosen.inputs or resolves:
        raise CliError(
            "files of requests have no parameters or inputs, and their namespace is the user's",
            ExitCode.USAGE,
            where="--namespace, --set, --input and --resolve",
            remedy="leave them out",
        )
    terminal = Terminal(as_json=as_json)
    with attach(place, LocalOptions("read", workers=1, say=terminal.note)) as session:
        if not place.is_cluster:
            wait_for_workers(session.http)
        plans = [plan_batch(session.http, file) for file in chosen.files]
        if session.is_owner:
            for file, found in zip(chosen.files, plans, strict=True):
                refuse_batch_that_no_worker_here_can_run(file, found)
        policies = session.http.where_allowed("/v1/policies", list[CachePolicy])
    if as_json:
        terminal.answer(plans)
        return
    for found in plans:
        show(terminal, found.forecast, policies)
        show_quotes(terminal, found)


def show(
    terminal: Terminal, forecast: Forecast, policies: Sequence[CachePolicy] | None = None
) -> None:
    """Writes a forecast: a line per step, and the sums of the known values.

    Args:
        terminal: to write to.
        forecast: of one workflow.
        policies: of the fabric; None where the user may not see them.
    """
    searched = ", ".join(map(formatting.scope, forecast.scopes))
    terminal.text(f"{forecast.namespace}/{forecast.name} (searches results of {searched})")
    terminal.text(f"  its results are {_sharing(forecast, policies)}")
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
    ]
    rows = [_row(step) for step in forecast.steps]
    if resolved := {s.path.removesuffix(".pin") for s in forecast.steps if s.engine == RESOLVE}:
        headings.append("fetches")
        for row, step in zip(rows, forecast.steps, strict=True):
            row.append(_fetches(step) if step.path in resolved else "-")
    details = [step.detail or place(step.worker) for step in forecast.steps]
    rows = [[*row, detail] for row, detail in zip(rows, details, strict=True)]
    has_reasons = any(
        s.detail for s in forecast.steps if s.expect not in ("unknown", *RUNS_NOTHING)
    )
    terminal.table(
        [*headings, ""],
        rows,
        right="actions hits batches cost time fetches",
        cut=[] if has_reasons else [""],
        optional="batches sure actions engine hits",
    )
    terminal.text(
        f"  {formatting.count(forecast.actions, 'known action')}, "
        f"{formatting.count(forecast.hits, 'hit')}, {_sums(forecast)}"
    )


def _sharing(forecast: Forecast, policies: Sequence[CachePolicy] | None) -> str:
    """Returns with whom results are shared; a namespace publishes to the last of its scopes."""
    scope = forecast.scopes[-1]
    if policies is None and is_shared(scope):
        return f"shared ({formatting.scope(scope)})"
    return sharing_text(shared_scope(policies or (), forecast.namespace, scope))


def _sums(forecast: Forecast) -> str:
    """Returns the ranges of all steps' dollars and seconds, and how many steps are guesses."""
    if all(step.expect in RUNS_NOTHING for step in forecast.steps):
        return "nothing to run"
    if not forecast.low_seconds:
        return "cost and time are not known: no connected worker can run it"
    usd = formatting.usd(forecast.low_nanousd, estimated=True)
    time_s = f"~{formatting.seconds(forecast.low_seconds)}"
    if forecast.high_seconds:
        usd += f" to {formatting.usd(forecast.high_nanousd, estimated=True)}"
        time_s += f" to {formatting.seconds(forecast.high_seconds)}"
    else:
        usd, time_s = f"at least {usd}", f"at least {time_s}"
    guesses = formatting.count(forecast.unmeasured, "step")
    sure = f"{guesses} not measured yet" if forecast.unmeasured else "all steps measured"
    return f"{usd}, {time_s} ({sure})"


def _row(step: PlannedStep) -> list[str]:
    runs = step.expect not in RUNS_NOTHING
    known = step.sure != GUESS
    nothing = UNKNOWN if step.expect == "unknown" else "-"
    cost = formatting.usd(step.nanousd, estimated=True) if known else UNKNOWN
    time_s = f"~{formatting.seconds(step.seconds)}" if known else UNKNOWN
    return [
        step.path,
        step.engine,
        step.expect,
        str(step.actions or nothing),
        str(step.hits or nothing),
        str(step.batches or nothing),
        cost if runs else "-",
        time_s if runs else "-",
        step.sure if known else "not yet",
    ]


def _fetches(step: PlannedStep) -> str:
    """Returns the bytes that an import has to fetch, as far as they are known."""
    if step.expect in RUNS_NOTHING:
        return "-"
    return formatting.size(step.fetch_bytes) if step.fetch_bytes else UNKNOWN


def place(worker: str) -> str:
    """Returns the worker that a step would go to; the planner's own worker stays unnamed."""
    if worker.startswith(f"{PLANNER}-"):
        return "on a local worker"
    return f"on {worker}" if worker else ""
