"""The options with which a command starts a local fabric."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation

from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_control.collection_settings import CollectionSettings
from flowmesh_core.spec.quantities import byte_count, not_zero, seconds

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
        collection: when the store is collected, and what stays.
    """

    serves: str
    workers: int = 0
    price_usd_per_hour: Decimal | None = None
    port: int = 0
    say: Callable[[str], None] = lambda _: None
    weights: Mapping[str, float] = field(default_factory=dict)
    collection: CollectionSettings = field(default_factory=CollectionSettings)

    def unused_text(self) -> str:
        """Returns that a fabric which runs already ignores its options; empty where none is given.

        One local worker is the default, which cannot be told from ``--workers 1``.
        """
        given = {
            f"--workers {self.workers}": self.workers != 1,
            "--price-usd-per-hour": self.price_usd_per_hour is not None,
            "--weight": bool(self.weights),
        }
        named = ", ".join(option for option, is_given in given.items() if is_given)
        if not named:
            return ""
        return f"{named}: ignored, since this joins a running fabric, which keeps its own options"


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


@dataclass(frozen=True, slots=True)
class CollectionOptions:
    """When ``fmesh up`` collects its store, and what stays, as given on the command line.

    Attributes:
        every: from one collection to the next, as a duration; ``0`` for never.
        grace: the age from which blobs are deleted.
        store_max: the most bytes in use, such as ``200Gi``; empty for no bound.
        results: how long results are valid where their cache policy has no ttl.
        runs: how long records of ended runs stay.
    """

    every: str
    grace: str
    store_max: str
    results: str
    runs: str

    def settings(self) -> CollectionSettings:
        """Returns the settings.

        Raises:
            CliError: one of the texts cannot be parsed, or is a limit of 0.
        """
        return CollectionSettings(
            interval_s=0.0 if self.every == "0" else _parsed("--collect-every", self.every),
            grace_s=_parsed("--collect-grace", self.grace),
            bytes_max=int(_limit("--store-max", self.store_max, byte_count))
            if self.store_max
            else 0,
            result_ttl_s=_limit("--keep-results", self.results),
            run_ttl_s=_limit("--keep-runs", self.runs),
        )


def _limit(option: str, text: str, parse: Callable[[str], float] = seconds) -> float:
    return _parsed(option, text, lambda given: not_zero(parse(given)))


def _parsed(option: str, text: str, parse: Callable[[str], float] = seconds) -> float:
    try:
        return parse(text)
    except ValueError as e:
        raise CliError(str(e), ExitCode.USAGE, where=option) from e
