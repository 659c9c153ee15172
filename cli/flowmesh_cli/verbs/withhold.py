"""``fmesh withhold``: keeps results from being reused, by provenance; lists and releases them."""

from dataclasses import dataclass

import msgspec

from flowmesh_api.v1 import routes
from flowmesh_api.v1.withheld import (
    ReleaseReport,
    ResultSelector,
    WithheldPage,
    WithholdReport,
)
from flowmesh_cli.attach import query_fabric
from flowmesh_cli.connection.client import ApiClient
from flowmesh_cli.connection.target import Target
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.verbs.times import read_time
from flowmesh_cli.views.formatting import count

RUNS_SHOWN = 20


@dataclass(frozen=True, slots=True)
class Withhold:
    """Which results, and what is done besides withholding them."""

    results: ResultSelector
    dry_run: bool = False
    rerun: bool = False
    purge: bool = False


def selector(worker: str, pool: str, attempt: str, library: str, since: str) -> ResultSelector:
    """Returns the conditions that are given.

    Raises:
        CliError: there is none, or the time is not one.
    """
    since_s = read_time(since, option="--since").timestamp() if since else 0.0
    found = ResultSelector(pool, worker, attempt, library, since_s)
    if found == ResultSelector():
        raise CliError(
            "no condition is given, so every result would be withheld",
            ExitCode.USAGE,
            remedy="give --worker, --pool, --attempt, --library or --since",
        )
    return found


def withhold_results(wanted: Withhold, *, yes: bool, place: Target, as_json: bool) -> None:
    """Shows what is concerned, asks, and withholds it."""
    terminal = Terminal(as_json=as_json)
    if wanted.dry_run and (wanted.rerun or wanted.purge):
        raise CliError(
            "--dry-run changes nothing, so it does not go with --rerun or --purge",
            ExitCode.USAGE,
            remedy="leave out one of them",
        )
    with query_fabric(place) as http:
        if not yes and not wanted.dry_run:
            found = _ask(http, Withhold(wanted.results, dry_run=True))
            results, runs = count(found.count, "result"), count(len(found.runs), "run")
            terminal.confirm(
                f"withhold {results}, which {runs} used{' and delete them' * wanted.purge}?",
                declined="nothing was withheld",
            )
        report = _ask(http, wanted)
    if as_json:
        terminal.answer(report)
    else:
        _show(terminal, report, dry_run=wanted.dry_run)


def release_results(results: ResultSelector, *, place: Target, as_json: bool) -> None:
    """Lets look-ups find withheld results again."""
    terminal = Terminal(as_json=as_json)
    document = {"results": msgspec.structs.asdict(results)}
    with query_fabric(place) as http:
        report = http.ask(
            "POST", routes.WITHHELD_RELEASE, ReleaseReport, document=document, takes_long=True
        )
    if as_json:
        terminal.answer(report)
    else:
        terminal.text(f"released {count(report.released, 'result')}")


def show_withheld(*, place: Target, as_json: bool) -> None:
    """Lists the withheld results."""
    terminal = Terminal(as_json=as_json)
    with query_fabric(place) as http:
        page = http.get(routes.WITHHELD, WithheldPage)
    if as_json:
        terminal.answer(page)
        return
    rows = [
        [r.scope, r.action_id[:12], r.engine, r.made_by.worker or "several", r.reason]
        for r in page.results
    ]
    terminal.table(
        ["scope", "action", "engine", "worker", "withheld for"],
        rows,
        cut="scope worker",
        optional="worker engine",
    )
    more = page.count - len(page.results)
    terminal.text(f"{count(page.count, 'result')} withheld" + f", {more} not shown" * (more > 0))


def _ask(http: ApiClient, wanted: Withhold) -> WithholdReport:
    document = {
        "results": msgspec.structs.asdict(wanted.results),
        "dry_run": wanted.dry_run,
        "rerun": wanted.rerun,
        "purge": wanted.purge,
    }
    return http.ask("POST", routes.WITHHELD, WithholdReport, document=document, takes_long=True)


def _show(terminal: Terminal, report: WithholdReport, *, dry_run: bool) -> None:
    would = "would withhold" if dry_run else "withheld"
    scopes = ", ".join(f"{number} in {scope}" for scope, number in report.scopes.items())
    terminal.text(
        f"{would} {count(report.count, 'result')} of {report.read} read"
        + (f" ({scopes})" if scopes else "")
    )
    if report.purged:
        terminal.text(f"deleted {count(report.purged, 'result')}; `fmesh cache gc` frees the space")
    rows = [
        [
            run.uid,
            run.namespace,
            run.phase,
            "made of a result" if run.derived else "a result",
            ", ".join(run.steps[:3]),
            run.rerun or run.refused,
        ]
        for run in report.runs[:RUNS_SHOWN]
    ]
    if rows:
        headings = ["run", "namespace", "phase", "has", "steps", "rerun"]
        if not any(row[-1] for row in rows):
            headings, rows = headings[:-1], [row[:-1] for row in rows]
        whole = ["run", "rerun"]
        terminal.table(headings, rows, whole=whole, cut="steps", optional="namespace")
    if len(report.runs) > RUNS_SHOWN:
        terminal.text(f"and {len(report.runs) - RUNS_SHOWN} more runs; --json has all")
    if report.derived:
        cut = "at least " * report.cut
        terminal.text(f"{cut}{count(len(report.derived), 'artifact')} made of them; --json has all")
    if report.connected and not dry_run:
        names = ", ".join(report.connected[:8])
        terminal.note(
            f"still connected: {names}; what they make from now on is not withheld: drain them, or "
            "remove them from their pool, and repeat the command"
        )
