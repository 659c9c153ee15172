"""Renders audit reports, the list of audits, and the quarantine."""

from collections.abc import Sequence

from flowmesh_api.v1.audit import AuditFinding, AuditReport, Provenance, QuarantineEntry
from flowmesh_api.v1.enums import Verdict
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.views import formatting

_DIGITS = 12
_SHOWN = 50
_VERDICT_WORDS = {
    Verdict.SAME: "same",
    Verdict.DIFFERS: "differ",
    Verdict.FAILED: "failed",
    Verdict.NOT_CHECKABLE: "not checkable",
}


def show_audit(terminal: Terminal, report: AuditReport) -> None:
    """Writes the sample, the findings and the cost of an audit."""
    order = report.order
    drawn = len(order.checks) + len(order.unchecked)
    terminal.text(
        f"audit of {order.namespace}/{order.run} {order.run_uid}: {drawn} of "
        f"{formatting.count(order.eligible, 'action')} that should repeat "
        f"(a sample of {order.share * 100:.4g}%, seed {order.seed})"
    )
    if order.passed_over:
        skipped = ", ".join(f"{n} {name}" for name, n in order.passed_over.items())
        terminal.text(f"  skipped, since they need not repeat: {skipped}")
    terminal.text(f"  {_counts(report)}")
    shown = [f for f in report.findings if f.verdict != Verdict.SAME]
    for finding in shown[:_SHOWN]:
        _show_finding(terminal, finding, report)
    for one in order.unchecked[: _SHOWN - len(shown)]:
        terminal.text(f"  {_place(one.step, one.chunk)} not checkable: {one.reason}")
    remaining = len(shown) + len(order.unchecked) - _SHOWN
    if remaining > 0:
        terminal.text(f"  and {remaining} more; --json has them all")
    if report.cut_off:
        terminal.text(f"  it was cut off: {report.cut_off}")
    if report.uid:
        terminal.text(
            f"  {order.namespace}, which requested it, paid {formatting.usd(report.paid_nanousd)} "
            f"(fmesh receipt {report.uid})"
        )


def show_audits(terminal: Terminal, audits: Sequence[AuditReport]) -> None:
    """Writes a line per audit."""
    if not audits:
        terminal.text("no audits")
        return
    rows = [
        [
            a.uid,
            f"{a.order.namespace}/{a.order.run} {a.order.run_uid}",
            a.phase,
            formatting.date(a.order.created_s),
            _counts(a) if a.counts else "-",
        ]
        for a in audits
    ]
    terminal.table(
        ["audit", "of", "phase", "requested", "found"],
        rows,
        whole="audit",
        cut="of",
        optional="requested",
    )


def show_quarantine(terminal: Terminal, found: Sequence[QuarantineEntry]) -> None:
    """Writes the signature classes whose earlier results are not reused."""
    if not found:
        terminal.text("nothing is in quarantine")
        return
    for entry in found:
        terminal.text(
            f"in quarantine: signature class {entry.signature_class[:_DIGITS]} of {entry.engine} "
            f"{entry.contract}.{entry.implementation}, since {formatting.date(entry.since_s)}"
        )
        terminal.text(
            f"  {entry.audit} found {entry.port} of {entry.run_uid} {entry.step} "
            f"({entry.action_id[:_DIGITS]}) to be {entry.published[:_DIGITS] or '-'}, then "
            f"{entry.again[:_DIGITS] or '-'}"
        )
        terminal.text(f"  `fmesh audit --release {entry.signature_class[:_DIGITS]}` ends it")


def _show_finding(terminal: Terminal, finding: AuditFinding, report: AuditReport) -> None:
    check = finding.check
    place = f"{_place(check.step, check.chunk)} ({check.engine}, {check.action_id[:_DIGITS]})"
    if finding.verdict != Verdict.DIFFERS:
        terminal.text(f"  {place} {_VERDICT_WORDS[finding.verdict]}: {finding.detail}")
        return
    terminal.text(f"  {place} differs in {', '.join(finding.ports)}")
    for port in finding.ports:
        before, now = check.outputs.get(port, "-"), finding.again.get(port, "-")
        terminal.text(f"    {port}: published {before[:_DIGITS]}, now {now[:_DIGITS]}")
    terminal.text(f"    published by {_by(check.published_by)}")
    terminal.text(f"    now made by {_by(finding.again_by)}")
    if not finding.quarantines:
        terminal.text(f"    not quarantined: {finding.detail}, which a seed does not promise")
    elif check.signature_class in report.quarantined:
        terminal.text(f"    quarantined: signature class {check.signature_class[:_DIGITS]}")
    else:
        terminal.text("    its signature class has been quarantined since then")


def _place(step: str, chunk: int) -> str:
    return step if chunk < 0 else f"{step} chunk {chunk}"


def _by(provenance: Provenance) -> str:
    libraries = ", ".join(f"{k} {v}" for k, v in sorted(provenance.libraries.items()))
    at = formatting.date(provenance.ended_s)
    return f"{provenance.worker} ({provenance.device_class}) at {at}: {libraries}"


def _counts(report: AuditReport) -> str:
    return ", ".join(f"{report.counts.get(v, 0)} {word}" for v, word in _VERDICT_WORDS.items())
