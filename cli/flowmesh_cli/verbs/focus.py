"""Charges as rows of FOCUS 1.4, the FinOps Open Cost and Usage Specification.

https://focus.finops.org/focus-specification/v1-4/, the data set Cost and Usage. It has all columns
that are mandatory, and those of the conditional ones whose condition holds here: sub accounts are
namespaces, resources are runs and services, and the price of a worker is that of a SKU.
"""

import csv
import io
import json
from collections.abc import Iterable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from flowmesh_api.v1.charges import Charge
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode

if TYPE_CHECKING:
    import pyarrow

_NANO = Decimal(1_000_000_000)
_HOURS_PLACES = Decimal(1).scaleb(-12)
_OWN = "x_"
"""The beginning of names of columns that are not of the specification."""

DECIMALS = (
    "BilledCost",
    "ConsumedQuantity",
    "ContractedCost",
    "EffectiveCost",
    "ListCost",
    "PricingQuantity",
    "x_LoadCost",
)
TIMES = ("BillingPeriodEnd", "BillingPeriodStart", "ChargePeriodEnd", "ChargePeriodStart")
INTEGERS = ("x_Attempts", "x_Tokens")
Value = str | int | Decimal | datetime | None


class FocusDataset:
    """Rows of FOCUS 1.4, one per charge.

    Attributes:
        rows: values by column: ``Decimal`` for amounts and quantities, ``datetime`` in UTC for
            times, ``int`` for counts, text, or None for null.
    """

    def __init__(self, charges: Iterable[Charge], account: str) -> None:
        """Converts charges; ``account`` is the billing account of all of them."""
        self.rows = [_row(charge, account) for charge in charges]

    @property
    def columns(self) -> Sequence[str]:
        """The names of the columns, also where there are no rows; our own are last."""
        return list(_row(Charge("", "", "", "", "1970-01-01", 0), ""))

    def to_csv(self) -> bytes:
        """Returns a header and a line per row: nulls are empty, times end with ``Z``."""
        text = io.StringIO()
        writer = csv.DictWriter(text, self.columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: _text(value) for name, value in row.items()} for row in self.rows)
        return text.getvalue().encode()

    def to_parquet(self) -> bytes:
        """Returns a Parquet file; amounts and quantities are ``decimal128(38, 12)``.

        Raises:
            CliError: pyarrow is not installed.
        """
        try:
            import pyarrow as pa  # noqa: PLC0415 - slow to load
            from pyarrow import parquet  # noqa: PLC0415
        except ImportError as e:
            raise CliError(
                f"Parquet cannot be written: {e}",
                ExitCode.USAGE,
                where="--format",
                remedy="pip install pyarrow, or leave --format out for CSV",
            ) from e
        schema = pa.schema([(name, _arrow_type(pa, name)) for name in self.columns])
        rows: list[dict[str, Any]] = list(self.rows)
        target = io.BytesIO()
        parquet.write_table(pa.Table.from_pylist(rows, schema=schema), target)
        return target.getvalue()


def _row(charge: Charge, account: str) -> dict[str, Value]:
    day = date.fromisoformat(charge.day)
    month = day.replace(day=1)
    next_month = (month + timedelta(days=31)).replace(day=1)
    cost = charge.paid_nanousd / _NANO
    priced = charge.price_nanousd_per_hour > 0
    hours = _hours(charge) if priced else None
    service = not charge.run
    sku = f"{charge.pool}@{charge.price_nanousd_per_hour / _NANO:f}/h" if priced else None
    return {
        "BilledCost": cost,
        "BillingAccountId": account,
        "BillingAccountName": account,
        "BillingCurrency": "USD",
        "BillingPeriodEnd": _midnight(next_month),
        "BillingPeriodStart": _midnight(month),
        "ChargeCategory": "Usage",
        "ChargeClass": None,
        "ChargeDescription": f"Service {charge.name}"
        if service
        else f"Step {charge.step} of workflow {charge.name}",
        "ChargeFrequency": "Usage-Based",
        "ChargePeriodEnd": _midnight(day + timedelta(days=1)),
        "ChargePeriodStart": _midnight(day),
        "ConsumedQuantity": hours,
        "ConsumedUnit": "Hours" if priced else None,
        "ContractedCost": cost,
        "EffectiveCost": cost,
        # A pool does not say whose machines it has.
        "HostProviderName": "FlowMesh",
        "InvoiceIssuerName": "FlowMesh",
        "ListCost": cost,
        "PricingQuantity": hours,
        "PricingUnit": "Hours" if priced else None,
        "ResourceId": f"{charge.namespace}/{charge.name}" if service else charge.run,
        "ResourceName": charge.name,
        "ResourceType": "Service" if service else "Workflow Run",
        "ServiceCategory": "AI and Machine Learning",
        "ServiceName": "FlowMesh",
        "ServiceProviderName": "FlowMesh",
        "ServiceSubcategory": "AI Platforms",
        "SkuId": charge.pool if priced else None,
        "SkuMeter": "Worker Time" if priced else None,
        "SkuPriceDetails": None,
        "SkuPriceId": sku,
        "SubAccountId": charge.namespace,
        "SubAccountName": charge.namespace,
        "Tags": json.dumps(charge.labels, sort_keys=True, ensure_ascii=False),
        f"{_OWN}Attempts": charge.attempts,
        f"{_OWN}LoadCost": charge.load_nanousd / _NANO,
        f"{_OWN}Step": charge.step or None,
        f"{_OWN}Tokens": charge.tokens,
    }


def _hours(charge: Charge) -> Decimal:
    """Returns the hours of a worker that were paid for: the cost over the price."""
    hours = Decimal(charge.paid_nanousd) / Decimal(charge.price_nanousd_per_hour)
    return hours.quantize(_HOURS_PLACES)


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)


def _text(value: Value) -> str:
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%dT%H:%M:%SZ}"
    if isinstance(value, Decimal):
        return f"{value:f}"
    return "" if value is None else str(value)


def _arrow_type(pa: Any, column: str) -> "pyarrow.DataType":
    if column in DECIMALS:
        return pa.decimal128(38, 12)
    if column in TIMES:
        return pa.timestamp("us", tz="UTC")
    return pa.int64() if column in INTEGERS else pa.string()
