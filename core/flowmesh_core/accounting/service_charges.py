"""What services paid, by day and price of the workers: the parts of their sums that bills show.

The machine adds to it. The accounts hold the latest days; once a day is over, the control plane
writes it into a record of its own and has it forgotten here.
"""

from collections.abc import Iterable
from datetime import date, timedelta

import msgspec

_DAY_S = 86400
_FIRST_DAY = date(1970, 1, 1)


class ServiceDay(msgspec.Struct, frozen=True, gc=False):
    """What a service paid on one day, in UTC, for its share of workers of one pool and price.

    Attributes:
        service: ``namespace/name``.
    """

    service: str
    day: date
    pool: str
    price_nanousd_per_hour: int
    paid_nanousd: int


class ServiceCharges:
    """Amounts by service, day, pool and price."""

    def __init__(self, rows: Iterable[ServiceDay] = ()) -> None:
        """Continues the rows of an earlier leader."""
        self._paid = {
            (r.service, (r.day - _FIRST_DAY).days, r.pool, r.price_nanousd_per_hour): r.paid_nanousd
            for r in rows
        }
        self._latest = max((day for _, day, _, _ in self._paid), default=0)

    def add(
        self, service: str, pool: str, price_nanousd_per_hour: int, nanousd: int, now_s: float
    ) -> None:
        """Adds an amount on the day of a time, or on the latest day if the clock was set back."""
        self._latest = max(self._latest, int(now_s) // _DAY_S)
        key = (service, self._latest, pool, price_nanousd_per_hour)
        self._paid[key] = self._paid.get(key, 0) + nanousd

    def rows(self) -> tuple[ServiceDay, ...]:
        """Returns every amount of days that were not forgotten."""
        return tuple(
            ServiceDay(service, _FIRST_DAY + timedelta(days=day), pool, price, paid)
            for (service, day, pool, price), paid in self._paid.items()
        )

    def forget(self, day: date) -> None:
        """Forgets a day that is over."""
        number = (day - _FIRST_DAY).days
        self._paid = {key: paid for key, paid in self._paid.items() if key[1] != number}


def days_over(rows: Iterable[ServiceDay]) -> dict[date, list[ServiceDay]]:
    """Returns the rows by day, without those of the latest day: amounts are still added to it."""
    days: dict[date, list[ServiceDay]] = {}
    for row in rows:
        days.setdefault(row.day, []).append(row)
    days.pop(max(days, default=_FIRST_DAY), None)
    return days
