"""What a run paid, for what, with whom, and what sharing saved it: a projection of its ledger."""

from collections.abc import Iterable

import msgspec

from flowmesh_core.accounting.ledger_lines import EXECUTED_OUTCOMES, AttemptLine, HitLine, Line


class ReceiptLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """A step's part of a receipt.

    Attributes:
        executed: attempts that this run paid for, in whole or in part.
        hits: actions that it did not have to run.
        shared_with: uids of the runs that it shared running actions with, and of those whose
            published results it used.
    """

    step: str
    executed: int = 0
    hits: int = 0
    in_flight: int = 0
    failed_attempts: int = 0
    paid_nanousd: int = 0
    load_nanousd: int = 0
    saved_nanousd: int = 0
    tokens: int = 0
    units: int = 0
    joules: float = 0.0
    joules_estimated: bool = True
    run_s: float = 0.0
    shared_with: tuple[str, ...] = ()


class Receipt(msgspec.Struct, frozen=True, omit_defaults=True):
    """A run's receipt. Σ ``paid_nanousd`` over all runs + fabric = the workers' bill.

    Attributes:
        audit_of: of an audit, the run that it made again: who asked for the audit pays for it.
    """

    uid: str
    name: str
    namespace: str
    lines: tuple[ReceiptLine, ...]
    paid_nanousd: int
    saved_nanousd: int
    joules: float
    joules_estimated: bool
    executed: int
    hits: int
    audit_of: str = ""


class ReceiptPage(msgspec.Struct, frozen=True):
    """Some of many receipts, in order of their runs' creation.

    Attributes:
        next: where the next page begins; empty on the last one.
        unreadable: runs of this page that have no receipt, since a record of them is damaged.
    """

    receipts: list[Receipt]
    next: str = ""
    unreadable: tuple[str, ...] = ()


def receipt(
    uid: str, name: str, namespace: str, lines: Iterable[Line], *, audit_of: str = ""
) -> Receipt:
    """Projects a run's ledger to its receipt, one line a step in order of first mention."""
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
