"""Computes a run's receipt from its ledger: cost by step, runs it shared with, and savings."""

from collections.abc import Iterable

import msgspec

from flowmesh_api.v1.receipts import Receipt, ReceiptLine
from flowmesh_api.v1.why import AttemptLine, HitLine
from flowmesh_core.accounting.ledger_lines import EXECUTED_OUTCOMES, Line
from flowmesh_core.errors import FailureKind


def receipt(
    uid: str, name: str, namespace: str, lines: Iterable[Line], *, audit_of: str = ""
) -> Receipt:
    """Returns the receipt of a run's ledger, one line per step in order of first mention."""
    steps: dict[str, ReceiptLine] = {}
    for line in lines:
        if isinstance(line, AttemptLine):
            steps[line.step] = _with_attempt(
                steps.get(line.step, ReceiptLine(line.step, joules_estimated=False)), line
            )
        elif isinstance(line, HitLine):
            steps[line.step] = _with_hit(
                steps.get(line.step, ReceiptLine(line.step, joules_estimated=False)), line
            )
    rows = tuple(steps.values())
    return Receipt(
        uid=uid,
        name=name,
        namespace=namespace,
        lines=rows,
        paid_nanousd=sum(r.paid_nanousd for r in rows),
        saved_nanousd=sum(r.saved_nanousd for r in rows),
        joules=sum(r.joules for r in rows),
        joules_estimated=any(r.joules_estimated for r in rows),
        executed=sum(r.executed for r in rows),
        hits=sum(r.hits for r in rows),
        audit_of=audit_of,
    )


def _with_attempt(row: ReceiptLine, line: AttemptLine) -> ReceiptLine:
    ran = line.outcome in EXECUTED_OUTCOMES
    failed = not ran and line.outcome != "shared"
    return msgspec.structs.replace(
        row,
        executed=row.executed + ran,
        failed_attempts=row.failed_attempts + failed,
        cancelled_attempts=row.cancelled_attempts + (line.outcome == FailureKind.CANCELLED),
        paid_nanousd=row.paid_nanousd + line.share_nanousd,
        load_nanousd=row.load_nanousd + line.load_nanousd,
        tokens=row.tokens + line.tokens_in + line.tokens_out,
        units=row.units + line.units,
        joules=row.joules + line.joules / max(line.sharers, 1),
        joules_estimated=row.joules_estimated or line.joules_estimated,
        run_s=row.run_s + line.run_s,
    )


def _with_hit(row: ReceiptLine, line: HitLine) -> ReceiptLine:
    others = dict.fromkeys([*row.shared_with, *line.sharers])
    if line.producer:
        others[line.producer] = None
    return msgspec.structs.replace(
        row,
        hits=row.hits + (line.hit != "in-flight"),
        in_flight=row.in_flight + (line.hit == "in-flight"),
        saved_nanousd=row.saved_nanousd + line.saved_nanousd,
        shared_with=tuple(others),
    )
