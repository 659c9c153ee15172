"""Options of a local fabric on the command line."""

from decimal import Decimal
from pathlib import Path

import pytest

from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.local.options import CollectionOptions, LocalOptions, price, tenant_weights
from flowmesh_cli.verbs.run import unused_weights
from flowmesh_cli.workflows.selection import WorkflowSelection
from flowmesh_cli.workflows.sources import read_sources


def test_weights_of_tenants_are_read_by_name() -> None:
    assert tenant_weights(None) == {}
    assert tenant_weights(["team-a=2", "team-b=0.5"]) == {"team-a": 2.0, "team-b": 0.5}


@pytest.mark.parametrize("text", ["team-a", "team-a=", "=2", "team-a=0", "team-a=-1", "a=inf"])
def test_an_invalid_weight_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(CliError, match="is not a tenant's weight") as caught:
        tenant_weights([text])
    assert (caught.value.code, caught.value.where) == (ExitCode.USAGE, "--weight")


def test_a_negative_or_malformed_price_is_refused() -> None:
    assert price(None) is None
    assert price("0.25") == Decimal("0.25")
    for text in ("-1", "nan", "much"):
        with pytest.raises(CliError, match="is not a price"):
            price(text)


def test_when_the_store_is_collected_is_read_from_durations_and_a_size() -> None:
    found = CollectionOptions("1h", "24h", "200Gi", "30d", "90d").settings()
    assert (found.interval_s, found.grace_s, found.bytes_max) == (3600.0, 86400.0, 200 << 30)
    assert (found.result_ttl_s, found.run_ttl_s) == (30 * 86400.0, 90 * 86400.0)
    never = CollectionOptions("0", "24h", "", "30d", "90d").settings()
    assert (never.interval_s, never.bytes_max) == (0.0, 0)
    for option, given in (
        ("--collect-every", ("often", "24h", "", "30d", "90d")),
        ("--store-max", ("1h", "24h", "much", "30d", "90d")),
        ("--store-max", ("1h", "24h", "0Gi", "30d", "90d")),
        ("--keep-results", ("1h", "24h", "", "0d", "90d")),
        ("--keep-runs", ("1h", "24h", "", "30d", "0s")),
    ):
        with pytest.raises(CliError, match=r"is not a|more than 0") as caught:
            CollectionOptions(*given).settings()
        assert (caught.value.code, caught.value.where) == (ExitCode.USAGE, option)


def test_a_weight_for_an_unknown_tenant_is_reported() -> None:
    file = Path(__file__).parents[2] / "examples" / "best-of-four.yaml"
    sources = read_sources(WorkflowSelection([file]))
    assert list(unused_weights({"team-a": 2.0, "taem-a": 2.0}, sources)) == [
        "--weight taem-a: no workflow belongs to this tenant; did you mean 'team-a'?"
    ]


def test_options_that_a_running_fabric_ignores_are_named() -> None:
    assert LocalOptions("run", workers=1).unused_text() == ""
    given = LocalOptions("run", workers=4, weights={"team-a": 2.0})
    assert given.unused_text().startswith("--workers 4, --weight: ignored")
