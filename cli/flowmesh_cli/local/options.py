"""How a process serves a state folder: said by a command, read by the fabric that it starts."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation

from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode

POOL = "local"
"""The pool of local workers, and the beginning of their names."""
PLANNER = "plan"
"""The beginning of the name of a worker that only answers a question."""


@dataclass(frozen=True, slots=True)
class LocalOptions:
    """How an owner serves.

    Attributes:
        serves: ``run``, ``up`` or ``read``.
        workers: local workers.
        port: of the API; 0 is any.
        say: takes what the fabric says by itself.
        weights: tenant → weight of its fair share; 1 where absent.
    """

    serves: str
    workers: int = 0
    price_usd_per_hour: Decimal | None = None
    port: int = 0
    say: Callable[[str], None] = lambda _: None
    weights: Mapping[str, float] = field(default_factory=dict)


def price(text: str | None) -> Decimal | None:
    """The price that the user gave.

    Raises:
        CliError: it is no amount.
    """
    if text is None:
        return None
    try:
        value = Decimal(text)
    except InvalidOperation:
        value = Decimal(-1)
    if not value.is_finite() or value < 0:
        raise CliError(
            f"{text!r} is no price",
            ExitCode.USAGE,
            where="--price-usd-per-hour",
            remedy="e.g. 0.25",
        )
    return value


def tenant_weights(given: Iterable[str] | None) -> dict[str, float]:
    """Weights of fair shares, from ``tenant=weight``.

    Raises:
        CliError: one is no such pair.
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
                f"{text!r} is no weight of a tenant",
                ExitCode.USAGE,
                where="--weight",
                remedy="e.g. team-a=2: twice the share of the others",
            )
        found[tenant] = value
    return found
