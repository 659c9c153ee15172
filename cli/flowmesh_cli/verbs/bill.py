"""``fmesh bill`` and ``fmesh export focus``: what namespaces paid in a period."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC
from pathlib import Path

from flowmesh_api.v1.charges import ChargePage
from flowmesh_cli.attach import query_fabric
from flowmesh_cli.connection.run_lookup import all_runs, find_run
from flowmesh_cli.connection.target import Target
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.verbs.exported_file import write_export
from flowmesh_cli.verbs.focus import FocusDataset
from flowmesh_cli.verbs.receipts import note_unreadable
from flowmesh_cli.verbs.times import DAY, read_time
from flowmesh_cli.views import formatting
from flowmesh_cli.views.steps import titles_of
from flowmesh_sdk.bill import GROUPINGS, NamespaceBill, read_charges

FORMATS = ("csv", "parquet")
SERVICE_CHARGES = "service-charges/"
"""Begins what a page of charges names where a record of services is damaged."""


@dataclass(frozen=True)
class Period:
    """Which charges are asked for.

    Attributes:
        run: uid, beginning of a uid, or name of a run; empty for all.
        since, until: as users write times; their days in UTC count, ``until`` excluded.
    """

    run: str = ""
    since: str = ""
    until: str = ""


def show_bill(period: Period, *, by: str, place: Target, as_json: bool) -> None:
    """Shows what namespaces paid.

    Raises:
        CliError: ``by`` is none of ``GROUPINGS``.
    """
    groupings = {str(name): name for name in GROUPINGS}
    if by not in groupings:
        raise _not_one_of(by, "--by", groupings)
    terminal = Terminal(as_json=as_json)
    bill = NamespaceBill(_charges(terminal, period, place), groupings[by])
    if as_json:
        lines = [line._asdict() for line in bill.lines]
        paid = sum(c.paid_nanousd for c in bill.charges)
        terminal.answer({"lines": lines, "paid_nanousd": paid, "unreadable": bill.unreadable})
        return
    rows = bill.rows()
    headings = list(rows[0]) if rows else ["namespace", "paid, $"]
    terminal.table(
        headings,
        [list(row.values()) for row in rows],
        right=("attempts", "paid, $"),
        whole="uid",
        cut="namespace run",
        optional=[name for name in ("attempts", "run") if "uid" in headings],
    )
    terminal.text(f"paid ${bill.paid_usd:.9f}; days are in UTC")


def export_focus(
    period: Period, *, format_: str, out: Path | None, account: str, place: Target
) -> None:
    """Writes charges as rows of FOCUS 1.4.

    Raises:
        CliError: the format is none of ``FORMATS``, or the file cannot be written.
    """
    if format_ not in FORMATS:
        raise _not_one_of(format_, "--format", FORMATS)
    terminal = Terminal(as_json=False)
    dataset = FocusDataset(_charges(terminal, period, place).charges, account)
    data = dataset.to_csv() if format_ == "csv" else dataset.to_parquet()
    write_export(data, out, formatting.count(len(dataset.rows), "row"))


def _charges(terminal: Terminal, period: Period, place: Target) -> ChargePage:
    since = _day(period.since, "--since")
    until = _day(period.until, "--until")
    with query_fabric(place) as http:
        run = find_run(http, period.run) if period.run else ""
        namespace = "" if run else http.namespace
        page = read_charges(http, namespace=namespace, run=run, since=since, until=until)
        names = titles_of(all_runs(http)) if page.unreadable else {}
    services = [key for key in page.unreadable if key.startswith(SERVICE_CHARGES)]
    if services:
        terminal.note(
            f"what services paid on some days is missing, since {', '.join(services)} of the store "
            f"{'is' if len(services) == 1 else 'are'} damaged"
        )
    note_unreadable(terminal, [uid for uid in page.unreadable if uid not in services], names)
    return page


def _day(text: str, option: str) -> str:
    if not text:
        return ""
    return read_time(text, option=option, expected=DAY).astimezone(UTC).date().isoformat()


def _not_one_of(given: str, option: str, names: Iterable[str]) -> CliError:
    return CliError(f"{given!r} is not one of {', '.join(names)}", ExitCode.USAGE, where=option)
