"""Rows of FOCUS 1.4 against the specification's own table of columns."""

import csv
import io
import json
import re
from datetime import datetime
from decimal import Decimal

import pytest
from pyarrow import parquet, types

from flowmesh_api.v1.charges import Charge, ChargePage
from flowmesh_cli.verbs.focus import FocusDataset
from flowmesh_sdk.bill import NamespaceBill

# FOCUS 1.4, the data set Cost and Usage: every column of the feature level Mandatory, with its data
# type and whether it allows nulls, by the FOCUS 1.4 Data Model workbook of the FinOps Foundation
# (https://focus.finops.org/focus-specification/v1-4/, CC BY 4.0; SHA-256 of the workbook 39b3e3347e
# 902a484cad180ead6fcb5a96b70cc76391c9af1916911a25a68005), as the package focus-data-toolkit 0.14.1
# has it. The second table has those of the other levels that the export writes.
MANDATORY = {
    "BilledCost": ("Decimal", False),
    "BillingAccountId": ("String", False),
    "BillingAccountName": ("String", True),
    "BillingCurrency": ("String", False),
    "BillingPeriodEnd": ("Date/Time", False),
    "BillingPeriodStart": ("Date/Time", False),
    "ChargeCategory": ("String", False),
    "ChargeClass": ("String", True),
    "ChargeDescription": ("String", True),
    "ChargePeriodEnd": ("Date/Time", False),
    "ChargePeriodStart": ("Date/Time", False),
    "ContractedCost": ("Decimal", False),
    "EffectiveCost": ("Decimal", False),
    "HostProviderName": ("String", True),
    "InvoiceIssuerName": ("String", False),
    "ListCost": ("Decimal", False),
    "PricingQuantity": ("Decimal", True),
    "PricingUnit": ("String", True),
    "ServiceCategory": ("String", False),
    "ServiceName": ("String", False),
    "ServiceProviderName": ("String", False),
}
OTHERS = {
    "ChargeFrequency": ("String", False),
    "ConsumedQuantity": ("Decimal", True),
    "ConsumedUnit": ("String", True),
    "ResourceId": ("String", True),
    "ResourceName": ("String", True),
    "ResourceType": ("String", True),
    "ServiceSubcategory": ("String", False),
    "SkuId": ("String", True),
    "SkuMeter": ("String", True),
    "SkuPriceDetails": ("JSON", True),
    "SkuPriceId": ("String", True),
    "SubAccountId": ("String", True),
    "SubAccountName": ("String", True),
    "Tags": ("JSON", True),
}
COLUMNS = MANDATORY | OTHERS
ALLOWED = {
    "BillingCurrency": {"USD"},
    "ChargeCategory": {"Usage", "Purchase", "Tax", "Credit", "Adjustment"},
    "ChargeClass": {"", "Correction"},
    "ChargeFrequency": {"One-Time", "Recurring", "Usage-Based"},
    "ServiceCategory": {"AI and Machine Learning"},
    "ServiceSubcategory": {"AI Platforms"},
}
DECIMAL = re.compile(r"-?\d+(\.\d+)?")

PRICED = Charge(
    "run-1", "answers", "team-a", "sample", "2026-12-31", 1_234_567_891, "gpu", 3_600_000_000,
    load_nanousd=200_000_000, attempts=3, tokens=1200, labels={"team": "süß", "cost-center": "42"},
)  # fmt: skip
LEFT = Charge("run-2", "answers", "team-b", "a,b", "2026-02-28", 1, attempts=1)
FREE = Charge("run-2", "answers", "team-b", "c", "2026-02-28", 0, "laptop", attempts=1)
SERVICE = Charge("", "ask", "team-b", "", "2026-02-28", 2_000_000_000, "gpu", 3_600_000_000)
CHARGES = [PRICED, LEFT, FREE, SERVICE]


def rows() -> list[dict[str, str]]:
    text = FocusDataset(CHARGES, "fabric-1").to_csv().decode()
    return list(csv.DictReader(io.StringIO(text)))


def time_of(text: str) -> datetime:
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S%z")


def test_every_column_is_of_the_specification_or_marked_as_our_own() -> None:
    columns = FocusDataset([], "fabric-1").columns
    assert set(MANDATORY) <= set(columns)
    assert [c for c in columns if c not in COLUMNS] == [c for c in columns if c.startswith("x_")]
    assert FocusDataset([], "fabric-1").to_csv().decode() == ",".join(columns) + "\n"


@pytest.mark.parametrize(("name", "kind", "is_null_allowed"), [(n, *k) for n, k in COLUMNS.items()])
def test_values_are_of_the_type_that_the_specification_gives_the_column(
    name: str, kind: str, is_null_allowed: bool
) -> None:
    values = [row[name] for row in rows()]
    if not is_null_allowed:
        assert all(values)
    for value in filter(None, values):
        assert value in ALLOWED.get(name, {value})
        if kind == "Decimal":
            assert DECIMAL.fullmatch(value)
        elif kind == "Date/Time":
            assert time_of(value).utcoffset() is not None
        elif kind == "JSON":
            assert isinstance(json.loads(value), dict)


def test_a_row_has_the_four_costs_the_periods_the_resource_and_the_tags_of_its_charge() -> None:
    row = rows()[0]
    costs = {row[c] for c in ("BilledCost", "EffectiveCost", "ListCost", "ContractedCost")}
    assert costs == {"1.234567891"}
    assert row["ChargePeriodStart"] == "2026-12-31T00:00:00Z"
    assert row["ChargePeriodEnd"] == row["BillingPeriodEnd"] == "2027-01-01T00:00:00Z"
    assert row["BillingPeriodStart"] == "2026-12-01T00:00:00Z"
    assert (row["SubAccountId"], row["ResourceId"]) == ("team-a", "run-1")
    assert json.loads(row["Tags"]) == PRICED.labels
    assert row["BillingAccountId"] == "fabric-1"
    assert (row["x_Step"], row["x_Tokens"], row["x_LoadCost"]) == ("sample", "1200", "0.2")


def test_a_service_is_a_resource_of_its_namespace() -> None:
    row = rows()[3]
    assert (row["ResourceType"], row["ResourceId"], row["ResourceName"]) == (
        "Service",
        "team-b/ask",
        "ask",
    )
    assert (row["SubAccountId"], row["ChargeDescription"]) == ("team-b", "Service ask")
    assert (row["SkuMeter"], row["BilledCost"], row["x_Step"]) == ("Worker Time", "2", "")


def test_the_quantity_is_the_time_paid_for_and_is_null_where_the_price_is_not_known() -> None:
    priced, left, free, _ = rows()
    assert priced["SkuPriceId"] == "gpu@3.6/h"
    assert priced["PricingUnit"] == priced["ConsumedUnit"] == "Hours"
    hours = Decimal(priced["PricingQuantity"])
    assert round(hours * PRICED.price_nanousd_per_hour) == PRICED.paid_nanousd
    for row in (left, free):
        names = ("SkuPriceId", "PricingQuantity", "PricingUnit", "ConsumedQuantity", "ConsumedUnit")
        assert not any(row[name] for name in names)


def test_parquet_has_the_same_rows_with_exact_amounts() -> None:
    table = parquet.read_table(io.BytesIO(FocusDataset(CHARGES, "fabric-1").to_parquet()))
    assert table.column_names == list(FocusDataset([], "").columns)
    for name, (kind, _) in COLUMNS.items():
        is_kind = {"Decimal": types.is_decimal, "Date/Time": types.is_timestamp}
        assert is_kind.get(kind, types.is_string)(table.schema.field(name).type)
    amounts = table.column("BilledCost").to_pylist()
    assert sum(amounts) * 1_000_000_000 == sum(c.paid_nanousd for c in CHARGES)
    assert table.column("ChargePeriodStart").to_pylist()[0].isoformat().endswith("+00:00")


@pytest.mark.parametrize("by", ["day", "namespace", "run"])
def test_a_bill_and_the_export_have_the_same_sum(by: str) -> None:
    bill = NamespaceBill(ChargePage(CHARGES), by)  # type: ignore[arg-type]
    exported = sum(Decimal(row["BilledCost"]) for row in rows())
    assert bill.paid_usd == exported == Decimal("3.234567892")
    assert sum(line.paid_usd for line in bill.lines) == exported


def test_a_bill_has_a_line_per_namespace_and_day_per_namespace_or_per_run() -> None:
    page = ChargePage(CHARGES)
    days = [(line.namespace, line.day, line.run) for line in NamespaceBill(page, "day").lines]
    assert days == [("team-a", "2026-12-31", ""), ("team-b", "2026-02-28", "")]
    assert [line.namespace for line in NamespaceBill(page, "namespace").lines] == [
        "team-a",
        "team-b",
    ]
    runs = [(line.run, line.name, line.attempts) for line in NamespaceBill(page, "run").lines]
    assert runs == [("run-1", "answers", 3), ("run-2", "answers", 2), ("", "ask", 0)]
    assert [row["run"] for row in NamespaceBill(page, "run").rows()][-1] == "service ask"
    assert "paid $3.234567892" in str(NamespaceBill(page))
    with pytest.raises(ValueError, match="use one of day, namespace, run"):
        NamespaceBill(page, "month")  # type: ignore[arg-type]
