"""Charges: what runs paid, by step and day, for bills and exports."""

import msgspec


class Charge(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a step of a run paid for the attempts that ended on one day, on workers of one price.

    Σ ``paid_nanousd`` over a run's charges is what its receipt says it paid.

    Attributes:
        run, name, namespace: of the run; ``run`` is its uid.
        day: on which the attempts ended, in UTC, such as ``2026-01-31``.
        pool: of the workers; empty, with ``price_nanousd_per_hour`` 0, where a worker had left
            before its attempt was settled.
        load_nanousd: of what was paid, for loading engines.
        attempts: whose cost the run shared or paid alone.
        tokens, units, run_s: of these attempts, as in the receipt; not divided among the runs that
            shared them.
        labels: of the workflow.
    """

    run: str
    name: str
    namespace: str
    step: str
    day: str
    paid_nanousd: int
    pool: str = ""
    price_nanousd_per_hour: int = 0
    load_nanousd: int = 0
    attempts: int = 0
    tokens: int = 0
    units: int = 0
    run_s: float = 0.0
    labels: dict[str, str] = {}


class ChargePage(msgspec.Struct, frozen=True):
    """The charges of some of many runs, in order of the runs' creation.

    Attributes:
        next: where the next page begins; empty on the last one.
        unreadable: runs of this page whose charges are not known, since a record of them is
            damaged.
    """

    charges: list[Charge]
    next: str = ""
    unreadable: tuple[str, ...] = ()
