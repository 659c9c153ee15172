"""What namespaces paid, by day or run, with amounts in dollars and a table for notebooks."""

from collections.abc import Callable
from datetime import date
from decimal import Decimal
from typing import Literal, NamedTuple

from flowmesh_api.v1 import routes
from flowmesh_api.v1.charges import Charge, ChargePage
from flowmesh_sdk.errors import InvalidArgumentError
from flowmesh_sdk.html import table_html
from flowmesh_sdk.http.client import ApiConnection

_NANO = Decimal(1_000_000_000)
Grouping = Literal["day", "namespace", "run"]
GROUPINGS: tuple[Grouping, ...] = ("day", "namespace", "run")


class BillLine(NamedTuple):
    """What a namespace paid; ``day`` (in UTC), ``run`` and ``name`` are empty where summed over.

    Attributes:
        run: uid of the run, whose workflow is ``name``; empty where that is a service.
        attempts: whose cost it shared or paid alone.
    """

    namespace: str
    day: str
    run: str
    name: str
    paid_nanousd: int
    attempts: int

    @property
    def paid_usd(self) -> Decimal:
        """Dollars, exactly."""
        return self.paid_nanousd / _NANO


_KEYS: dict[Grouping, Callable[[Charge], tuple[str, str, str, str]]] = {
    "day": lambda c: (c.namespace, c.day, "", ""),
    "namespace": lambda c: (c.namespace, "", "", ""),
    "run": lambda c: (c.namespace, "", c.run, c.name),
}


class NamespaceBill:
    """What the runs and services paid that the user may see. ``str()`` of it is a table.

    Attributes:
        charges: all of it, by step or service, and day.
        unreadable: uids of runs, and keys of records of services, that are missing since a record
            is damaged.
    """

    def __init__(self, page: ChargePage, by: Grouping = "day") -> None:
        """Groups charges.

        Raises:
            InvalidArgumentError: ``by`` is none of ``GROUPINGS``.
        """
        if by not in _KEYS:
            raise InvalidArgumentError(
                f"{by!r} is not a grouping", where="by", remedy=f"use one of {', '.join(GROUPINGS)}"
            )
        self.charges, self.unreadable, self._by = page.charges, page.unreadable, by

    @property
    def paid_usd(self) -> Decimal:
        """Dollars in all, exactly."""
        return sum(c.paid_nanousd for c in self.charges) / _NANO

    @property
    def lines(self) -> list[BillLine]:
        """A line per namespace and day (in UTC), per namespace, or per run, in this order.

        A service has a line beside those of runs.
        """
        sums: dict[tuple[str, str, str, str], tuple[int, int]] = {}
        for charge in self.charges:
            key = _KEYS[self._by](charge)
            paid, attempts = sums.get(key, (0, 0))
            sums[key] = (paid + charge.paid_nanousd, attempts + charge.attempts)
        found = [BillLine(*key, *amounts) for key, amounts in sums.items()]
        # Runs stay in order of their creation.
        return sorted(found, key=lambda line: (line.namespace, line.day))

    def rows(self) -> list[dict[str, str]]:
        """Returns the lines as texts by heading."""
        return [
            {
                "namespace": line.namespace,
                **({"day (UTC)": line.day} if self._by == "day" else {}),
                **(_payer(line) if self._by == "run" else {}),
                "attempts": str(line.attempts),
                "paid, $": f"{line.paid_usd:.9f}",
            }
            for line in self.lines
        ]

    def __repr__(self) -> str:
        """Shows the sum."""
        return f"<NamespaceBill: paid ${self.paid_usd:.9f}>"

    def __str__(self) -> str:
        """Returns a table of the lines, and the sum."""
        lines = ["  ".join(row.values()) for row in self.rows()]
        return "\n".join([*lines, f"paid ${self.paid_usd:.9f}"])

    def _repr_html_(self) -> str:
        return table_html(self.rows(), title=repr(self)[1:-1])


def _payer(line: BillLine) -> dict[str, str]:
    return {"run": line.name if line.run else f"service {line.name}", "uid": line.run}


def read_charges(
    http: ApiConnection,
    *,
    namespace: str = "",
    run: str = "",
    since: date | str = "",
    until: date | str = "",
) -> ChargePage:
    """Returns the charges of the runs and services that the user may see, as one page.

    Args:
        http: the connection.
        namespace: only this one's; empty for all.
        run: only those of the run of this uid.
        since: the first day, in UTC.
        until: the day after the last one.
    """
    query = {"namespace": namespace, "run": run, "since": str(since), "until": str(until)}
    found: list[Charge] = []
    unreadable: list[str] = []
    after = ""
    while True:
        page = http.get(routes.CHARGES, ChargePage, after=after, **query)
        found += page.charges
        unreadable += page.unreadable
        after = page.next
        if not after:
            return ChargePage(found, unreadable=tuple(unreadable))
