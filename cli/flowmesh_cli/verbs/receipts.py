"""``fmesh receipt``: shows what runs paid and saved, and the fabric account."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from flowmesh_api.v1.fabric import FabricStatus
from flowmesh_api.v1.receipts import Receipt, ReceiptLine, ReceiptPage
from flowmesh_cli.attach import look
from flowmesh_cli.connection.client import ApiClient
from flowmesh_cli.connection.run_lookup import all_runs, find_run
from flowmesh_cli.connection.target import Target
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.views import formatting
from flowmesh_cli.views.runs import show_fabric
from flowmesh_cli.views.steps import titles_of
from flowmesh_core.accounting.ledger_lines import AttemptLine
from flowmesh_core.errors import FailureKind

_ENGINE_SECONDS = (
    "engine s: seconds that attempts ran in engines, without loading; concurrent attempts each "
    "count in full"
)


class SharedWork(msgspec.Struct, frozen=True):
    """The work that one run reused from another.

    Attributes:
        taker, giver: tenant and name of the runs.
        steps: the taker's steps.
        saved_nanousd: saved by those steps; a step with several givers counts for each.
    """

    taker: str
    giver: str
    steps: tuple[str, ...]
    saved_nanousd: int


class _Story(msgspec.Struct, frozen=True):
    """The part of a step's explanation that is read here."""

    attempts: tuple[AttemptLine, ...]


def show_receipt(run: str, *, place: Target, as_json: bool) -> None:
    """Shows one receipt."""
    terminal = Terminal(as_json=as_json)
    with look(place) as http:
        receipt = read_receipt(http, find_run(http, run))
        names = titles_of(all_runs(http))
        cancelled = {} if as_json else cancelled_attempts(http, receipt)
    if as_json:
        terminal.answer(receipt)
        return
    show_lines(terminal, receipt, names, cancelled)


def cancelled_attempts(http: ApiClient, receipt: Receipt) -> dict[str, int]:
    """Returns, by step, how many of the attempts without a result were cancelled, not failed."""
    found = {}
    for line in receipt.lines:
        if line.failed_attempts:
            story = http.get(f"/v1/runs/{receipt.uid}/why", _Story, step=line.step)
            found[line.step] = sum(a.outcome == FailureKind.CANCELLED for a in story.attempts)
    return found


def show_lines(
    terminal: Terminal, receipt: Receipt, names: Mapping[str, str], cancelled: Mapping[str, int]
) -> None:
    """Writes a receipt.

    Args:
        terminal: where to write.
        receipt: the receipt.
        names: titles of runs by uid.
        cancelled: as :func:`cancelled_attempts` returns it.
    """
    terminal.text(f"receipt of {receipt.namespace}/{receipt.name} {receipt.uid}")
    rows = [_row(line, names, cancelled.get(line.step, 0)) for line in receipt.lines]
    headings = [
        "step",
        "ran",
        "failed",
        "cancelled",
        "hits",
        "tokens",
        "engine s",
        "paid",
        "saved",
        "shared with",
    ]
    numbers = ("ran", "failed", "cancelled", "hits", "tokens", "engine s", "paid", "saved")
    terminal.table(headings, rows, right=numbers)
    terminal.text(
        f"paid {formatting.exact_usd(receipt.paid_nanousd)}, "
        f"sharing saved {formatting.exact_usd(receipt.saved_nanousd)}, "
        f"{formatting.joules(receipt.joules, estimated=receipt.joules_estimated)}"
    )
    terminal.text(_ENGINE_SECONDS)


def show_receipts(*, place: Target, as_json: bool) -> None:
    """Shows all receipts, which runs shared, and the fabric account."""
    terminal = Terminal(as_json=as_json)
    with look(place) as http:
        runs = all_runs(http, http.namespace)
        receipts = read_receipts(http, http.namespace)
        fabric = http.where_allowed("/v1/fabric", FabricStatus)
    shared = sharing(receipts, titles_of(runs))
    if as_json:
        terminal.answer({"receipts": receipts, "shared": shared, "fabric": fabric})
        return
    rows = [
        [
            f"{r.namespace}/{r.name}",
            r.uid,
            str(r.executed),
            str(r.hits + sum(line.in_flight for line in r.lines)),
            formatting.exact_usd(r.paid_nanousd),
            formatting.exact_usd(r.saved_nanousd),
        ]
        for r in receipts
    ]
    terminal.table(
        ["run", "uid", "ran", "hits", "paid", "saved"], rows, right="ran hits paid saved"
    )
    show_sharing(terminal, shared)
    show_fabric(terminal, fabric)


def sharing(receipts: Iterable[Receipt], names: dict[str, str]) -> list[SharedWork]:
    """Returns which runs reused work of which others, in order of the receipts."""
    found: dict[tuple[str, str], list[ReceiptLine]] = defaultdict(list)
    for receipt in receipts:
        for line in receipt.lines:
            for other in line.shared_with:
                if other != receipt.uid:
                    found[receipt.uid, other].append(line)
    return [
        SharedWork(
            names.get(taker, taker),
            names.get(giver, giver),
            tuple(line.step for line in lines),
            sum(line.saved_nanousd for line in lines),
        )
        for (taker, giver), lines in found.items()
    ]


def show_sharing(terminal: Terminal, shared: Sequence[SharedWork]) -> None:
    """Writes a line for each run and set of steps that it shared with the same others."""
    givers: dict[tuple[str, tuple[str, ...], int], list[str]] = defaultdict(list)
    for found in shared:
        givers[found.taker, found.steps, found.saved_nanousd].append(found.giver)
    for (taker, steps, saved), others in givers.items():
        terminal.text(
            f"  {taker} shared {', '.join(steps)} with {', '.join(others)}: "
            f"saved {formatting.usd(saved)}"
        )


def read_receipt(http: ApiClient, uid: str) -> Receipt:
    """Returns a run's receipt."""
    return http.get(f"/v1/runs/{uid}/receipt", Receipt)


def read_receipts(http: ApiClient, namespace: str = "") -> list[Receipt]:
    """Returns the receipts of every run that the user may list, oldest first.

    One request, or one per page where there are many.
    """
    found: list[Receipt] = []
    after = ""
    while True:
        page = http.get("/v1/receipts", ReceiptPage, namespace=namespace, after=after)
        found += page.receipts
        after = page.next
        if not after:
            return found


def _row(line: ReceiptLine, names: Mapping[str, str], cancelled: int) -> list[str]:
    hits = line.hits + line.in_flight
    return [
        line.step,
        str(line.executed),
        str(line.failed_attempts - cancelled),
        str(cancelled),
        f"{hits} ({line.in_flight} in flight)" if line.in_flight else str(hits),
        str(line.tokens),
        f"{line.run_s:.1f}",
        formatting.exact_usd(line.paid_nanousd),
        formatting.exact_usd(line.saved_nanousd),
        ", ".join(names.get(uid, uid) for uid in line.shared_with),
    ]
