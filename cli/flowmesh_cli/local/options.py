"""The options with which a command starts a local fabric."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation

from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode

POOL = "local"
"""The pool of local workers, and the prefix of their names."""
PLANNER = f"{POOL}-plan"
"""The prefix of the name of a worker that exists only for a plan."""


@dataclass(frozen=True, slots=True)
class LocalOptions:
    """How an owner serves a state folder.

    Attributes:
        serves: ``run``, ``up`` or ``read``.
        workers: number of local workers.
        price_usd_per_hour: price of one worker; an estimate by its device if None.
        port: the API's port; 0 for any.
        say: prints a message of the fabric.
        weights: tenant → weight of its fair share; 1 where absent.
    """

    serves: str
    workers: int = 0
    price_usd_per_hour: Decimal | None = None
    port: int = 0
    say: Callable[[str], None] = lambda _: None
    weights: Mapping[str, float] = field(default_factory=dict)


def price(text: str | None) -> Decimal | None:
    """Parses a price in dollars; None for None.

    Raises:
        CliError: it is not an amount.
    """
    if text is None:
        return None
    try:
        value = Decimal(text)
    except InvalidOperation:
        value = Decimal(-1)
    if not value.is_finite() or value < 0:
        raise CliError(
            f"{text!r} is not a price",
            ExitCode.USAGE,
            where="--price-usd-per-hour",
            remedy="e.g. 0.25",
        )
    return value


def tenant_weights(given: Iterable[str] | None) -> dict[str, float]:
    """Parses weights of fair shares, as ``tenant=weight``.

    Raises:
        CliError: one is not such a pair.
    """
    found = {}
    for text in given or ():
        tenant, sign, weight = text.rpartition("=")
        try:
            value = float(weight)
        except ValueError:
            value = 0.0
        if not (tenant and sign and 0 < value < float("inf")):
            raise CliError(
                f"{text!r} is not a tenant's weight",
                ExitCode.USAGE,
                where="--weight",
                remedy="e.g. team-a=2 for twice the share of others",
            )
        found[tenant] = value
    return found
