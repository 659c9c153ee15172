"""``fmesh audit``: re-executes results of a run and compares them; lists and ends quarantines."""

from dataclasses import dataclass
from decimal import Decimal, InvalidOperation

import typer

from flowmesh_api.v1.audit import AuditAccepted, AuditReport, QuarantineEntry
from flowmesh_api.v1.enums import Phase, Verdict
from flowmesh_cli.attach import attach, query_fabric
from flowmesh_cli.connection.client import ApiClient
from flowmesh_cli.connection.run_lookup import find_run
from flowmesh_cli.connection.target import Target
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.interrupts import Interrupts
from flowmesh_cli.local.options import LocalOptions, price
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.verbs.run import abort, follow, wait_for_others
from flowmesh_cli.views.audit import show_audit, show_audits, show_quarantine


@dataclass(frozen=True, slots=True)
class AuditSample:
    """The sample of audited actions: a share of them, drawn with a seed."""

    share: float
    seed: int


def read_sample(text: str, seed: int) -> AuditSample:
    """Reads ``5%`` or ``0.05``.

    Raises:
        CliError: it is neither.
    """
    try:
        percent = Decimal(text[:-1]) if text.endswith("%") else Decimal(text) * 100
    except InvalidOperation:
        percent = Decimal(-1)
    if not percent.is_finite() or not 0 < percent <= 100:  # noqa: PLR2004 - per cent
        raise CliError(
            f"{text!r} is not a share",
            ExitCode.USAGE,
            where="--sample",
            remedy="e.g. 5%, 0.05 or 100%",
        )
    return AuditSample(float(percent / 100), seed)


def audit_run(
    run: str,
    sample: AuditSample,
    *,
    workers: int,
    price_usd_per_hour: str | None,
    place: Target,
    as_json: bool,
) -> None:
    """Audits a run and shows the report; raises ``typer.Exit`` where results differ."""
    terminal = Terminal(as_json=as_json)
    with query_fabric(place) as http:  # without workers: they start only if the run exists
        uid = find_run(http, run)
    options = LocalOptions("run", workers, price(price_usd_per_hour), say=terminal.note)
    with (
        attach(place, options) as session,
        Interrupts(at_once=lambda: abort(session)) as interrupts,
    ):
        accepted = _begin(session.http, uid, sample)
        if accepted.resumed:
            terminal.note(f"resuming audit {accepted.uid}")
        report = accepted.report
        if report is None:
            follow(session, [accepted.uid], terminal, interrupts)
            report = session.http.get(f"/v1/audits/{accepted.uid}", AuditReport)
        wait_for_others(session, terminal, interrupts)
    if as_json:
        terminal.answer(report)
    else:
        show_audit(terminal, report)
    code = ExitCode.INTERRUPTED if interrupts.asked else code_of(report)
    if code:
        raise typer.Exit(code)


def list_audits(*, place: Target, as_json: bool) -> None:
    """Shows all audits, and the signature classes in quarantine."""
    terminal = Terminal(as_json=as_json)
    with query_fabric(place) as http:
        audits = http.get("/v1/audits", list[AuditReport])
        quarantine = http.get("/v1/quarantine", list[QuarantineEntry])
    if as_json:
        terminal.answer({"audits": audits, "quarantine": quarantine})
        return
    show_audits(terminal, audits)
    show_quarantine(terminal, quarantine)


def release_class(beginning: str, *, place: Target, as_json: bool) -> None:
    """Ends the quarantine of a signature class."""
    terminal = Terminal(as_json=as_json)
    with query_fabric(place) as http:
        released = http.ask("DELETE", f"/v1/quarantine/{beginning}", QuarantineEntry)
    if as_json:
        terminal.answer(released)
    else:
        terminal.text(
            f"released {released.signature_class[:12]} ({released.engine}): results published "
            "before its quarantine are reused again"
        )


def code_of(report: AuditReport) -> ExitCode:
    """Returns the exit code of an audit."""
    if report.counts.get(Verdict.DIFFERS, 0) or report.counts.get(Verdict.FAILED, 0):
        return ExitCode.FAILED
    return ExitCode.CANCELLED if report.phase == Phase.CANCELLED else ExitCode.OK


def _begin(http: ApiClient, uid: str, sample: AuditSample) -> AuditAccepted:
    document = {"share": sample.share, "seed": sample.seed}
    return http.ask("POST", f"/v1/runs/{uid}/audit", AuditAccepted, document=document)
