"""Charges: what runs and services paid, by day, for bills and exports."""

import msgspec


class Charge(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a step of a run, or a service, paid on one day for workers of one pool and price.

    Σ ``paid_nanousd`` over a run's charges is what its receipt says it paid; over a service's, what
    its replicas cost.

    Attributes:
        run: uid of the run; empty where a service paid.
        name, namespace: of the run's workflow, or of the service.
        step: of the run; empty where a service paid.
        day: in UTC, such as ``2026-01-31``: on which the attempts ended, or on which the service
            had its share of the workers.
        pool: of the workers; empty, with ``price_nanousd_per_hour`` 0, where a worker had left
            before its attempt was settled.
        load_nanousd: of what was paid, for loading engines.
        attempts: whose cost the run shared or paid alone.
        tokens, units, run_s: of these attempts, as in the receipt; not divided among the runs that
            shared them.
        labels: of the workflow; none of services.
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

    The first page begins with those of services, unless one run is asked for.

    Attributes:
        next: where the next page begins; empty on the last one.
        unreadable: runs of this page whose charges are not known, since a record of them is
            damaged; and the damaged records of what services paid on a day, by their keys
            (``service-charges/…``).
    """

    charges: list[Charge]
    next: str = ""
    unreadable: tuple[str, ...] = ()
