"""Computes charges: a run's receipt divided by day and price, and what services paid."""

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime
from typing import NamedTuple

import msgspec

from flowmesh_api.v1.charges import Charge
from flowmesh_api.v1.why import AttemptLine
from flowmesh_core.accounting.ledger_lines import Line
from flowmesh_core.accounting.service_charges import ServiceDay


class Days(NamedTuple):
    """Days in UTC, from ``first`` on and before ``end``; None for no bound."""

    first: date | None = None
    end: date | None = None

    def has(self, day: date) -> bool:
        """Whether a day is one of them."""
        return (self.first is None or day >= self.first) and (self.end is None or day < self.end)


ALL_DAYS = Days()


class Payer(NamedTuple):
    """The run that pays; ``labels`` are those of its workflow."""

    uid: str
    name: str
    namespace: str
    labels: Mapping[str, str]


def charges(payer: Payer, lines: Iterable[Line], days: Days = ALL_DAYS) -> list[Charge]:
    """Returns a run's charges of some days, in order of first mention in its ledger."""
    found: dict[tuple[str, date, str, int], Charge] = {}
    labels = dict(payer.labels)  # one for all charges: there may be very many
    for line in lines:
        if not isinstance(line, AttemptLine):
            continue
        day = utc_day(line.time_s)
        if not days.has(day):
            continue
        ran = line.ran
        pool, price = ("", 0) if ran is None else (ran.pool, ran.price_nanousd_per_hour)
        key = (line.step, day, pool, price)
        known = found.get(key) or Charge(
            run=payer.uid,
            name=payer.name,
            namespace=payer.namespace,
            step=line.step,
            day=day.isoformat(),
            paid_nanousd=0,
            pool=pool,
            price_nanousd_per_hour=price,
            labels=labels,
        )
        found[key] = msgspec.structs.replace(
            known,
            paid_nanousd=known.paid_nanousd + line.share_nanousd,
            load_nanousd=known.load_nanousd + line.load_nanousd,
            attempts=known.attempts + 1,
            tokens=known.tokens + line.tokens_in + line.tokens_out,
            units=known.units + line.units,
            run_s=known.run_s + line.run_s,
        )
    return list(found.values())


def service_charge(row: ServiceDay) -> Charge:
    """Returns what a service paid on a day as a charge."""
    namespace, _, name = row.service.partition("/")
    return Charge(
        run="",
        name=name,
        namespace=namespace,
        step="",
        day=row.day.isoformat(),
        paid_nanousd=row.paid_nanousd,
        pool=row.pool,
        price_nanousd_per_hour=row.price_nanousd_per_hour,
    )


def utc_day(time_s: float) -> date:
    """Returns the day of a Unix time, in UTC."""
    return datetime.fromtimestamp(time_s, UTC).date()
