"""``fmesh receipt``: shows what runs paid and saved, and the fabric account."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from flowmesh_api.v1.fabric import FabricStatus
from flowmesh_api.v1.receipts import Receipt, ReceiptLine, ReceiptPage
from flowmesh_cli.attach import query_fabric
from flowmesh_cli.connection.client import ApiClient
from flowmesh_cli.connection.run_lookup import all_runs, find_run
from flowmesh_cli.connection.target import Target
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.views import formatting
from flowmesh_cli.views.runs import show_fabric
from flowmesh_cli.views.steps import titles_of

_ENGINE_SECONDS = (
    "engine s: seconds that attempts ran in engines, without loading; concurrent attempts each "
    "count in full"
)


_NAMED = 10


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


def show_receipt(run: str, *, place: Target, as_json: bool) -> None:
    """Shows one receipt."""
    terminal = Terminal(as_json=as_json)
    with query_fabric(place) as http:
        receipt = read_receipt(http, find_run(http, run))
        names = titles_of(all_runs(http))
    if as_json:
        terminal.answer(receipt)
        return
    show_lines(terminal, receipt, names)


def show_lines(terminal: Terminal, receipt: Receipt, names: Mapping[str, str]) -> None:
    """Writes a receipt.

    Args:
        terminal: where to write.
        receipt: the receipt.
        names: titles of runs by uid.
    """
    terminal.text(f"receipt of {receipt.namespace}/{receipt.name} {receipt.uid}")
    rows = [_row(line, names) for line in receipt.lines]
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
    optional = ("engine s", "tokens", "cancelled", "failed", "hits")
    shown = terminal.table(headings, rows, right=numbers, cut=["shared with"], optional=optional)
    terminal.text(
        f"paid {formatting.exact_usd(receipt.paid_nanousd)}, "
        f"sharing saved {formatting.exact_usd(receipt.saved_nanousd)}, "
        f"{formatting.joules(receipt.joules, estimated=receipt.joules_estimated)}"
    )
    if "engine s" in shown:
        terminal.text(_ENGINE_SECONDS)


def show_receipts(*, place: Target, as_json: bool) -> None:
    """Shows all receipts, which runs shared, and the fabric account."""
    terminal = Terminal(as_json=as_json)
    with query_fabric(place) as http:
        runs = all_runs(http, http.namespace)
        page = read_receipts(http, http.namespace)
        fabric = http.where_allowed("/v1/fabric", FabricStatus)
    receipts, names = page.receipts, titles_of(runs)
    shared = sharing(receipts, names)
    if as_json:
        found = {"receipts": receipts, "shared": shared, "fabric": fabric}
        terminal.answer({**found, "unreadable": page.unreadable})
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
        ["run", "uid", "ran", "hits", "paid", "saved"],
        rows,
        right="ran hits paid saved",
        whole="uid",
        cut="run",
        optional="ran hits saved",
    )
    show_sharing(terminal, shared)
    show_fabric(terminal, fabric)
    note_unreadable(terminal, page.unreadable, names)


def note_unreadable(terminal: Terminal, uids: Sequence[str], names: Mapping[str, str]) -> None:
    """Notes which runs have no receipt, where a record of them is damaged."""
    if not uids:
        return
    named = [f"{names[uid]} ({uid})" if uid in names else uid for uid in uids[:_NAMED]]
    more = f" and {len(uids) - _NAMED} more" if len(uids) > _NAMED else ""
    terminal.note(
        f"{formatting.count(len(uids), 'run')} without a receipt, since a record is damaged: "
        f"{', '.join(named)}{more}; `fmesh receipt UID` names the record"
    )


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


def read_receipts(http: ApiClient, namespace: str = "") -> ReceiptPage:
    """Returns the receipts of every run that the user may list, oldest first, as one page.

    One request, or one per page where there are many.
    """
    found: list[Receipt] = []
    unreadable: list[str] = []
    after = ""
    while True:
        page = http.get("/v1/receipts", ReceiptPage, namespace=namespace, after=after)
        found += page.receipts
        unreadable += page.unreadable
        after = page.next
        if not after:
            return ReceiptPage(found, unreadable=tuple(unreadable))


def _row(line: ReceiptLine, names: Mapping[str, str]) -> list[str]:
    hits = line.hits + line.in_flight
    return [
        line.step,
        str(line.executed),
        str(line.failed_attempts - line.cancelled_attempts),
        str(line.cancelled_attempts),
        f"{hits} ({line.in_flight} in flight)" if line.in_flight else str(hits),
        str(line.tokens),
        f"{line.run_s:.1f}",
        formatting.exact_usd(line.paid_nanousd),
        formatting.exact_usd(line.saved_nanousd),
        ", ".join(names.get(uid, uid) for uid in line.shared_with),
    ]
