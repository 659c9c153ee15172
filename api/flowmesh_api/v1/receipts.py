"""Receipts: what a run paid, for which work, shared with which runs, and what it saved."""

import msgspec


class ReceiptLine(msgspec.Struct, frozen=True, omit_defaults=True):
    """A step's part of a receipt.

    Attributes:
        executed: actions that ran to a result for this run, as its status counts them; one that
            several runs waited for counts for the first, and is ``in_flight`` for the others.
        hits: actions whose published results it used; a run's status counts ``in_flight`` as hits
            too.
        failed_attempts: attempts without a result; ``cancelled_attempts`` counts those of them that
            were cancelled, which is not a failure.
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
    cancelled_attempts: int = 0


class Receipt(msgspec.Struct, frozen=True, omit_defaults=True):
    """A run's receipt. Σ ``paid_nanousd`` over all runs + fabric = the workers' bill.

    Attributes:
        audit_of: of an audit, the run that it executed again; the user who requested the audit
            pays.
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
