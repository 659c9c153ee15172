"""Durations, memory and dollars."""

import pytest

from flowmesh_core.spec.quantities import budget, mebibytes, seconds


@pytest.mark.parametrize(
    ("text", "value"),
    [("90s", 90.0), ("30m", 1800.0), ("1h30m", 5400.0), ("30d", 2_592_000.0), ("250ms", 0.25)],
)
def test_durations_become_seconds(text: str, value: float) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4Gi", 4096),
        ("512Mi", 512),
        ("1G", 954),
        ("1.5Gi", 1536),
        ("1k", 1),
        ("2113411308Ki", 2_063_879),
    ],
)
def test_memory_becomes_mebibytes_rounded_up(text: str, value: int) -> None:
    assert mebibytes(text) == value


def test_dollars_become_nano_dollars_exactly() -> None:
    assert budget("0.50") == 500_000_000
    assert budget("0.000000001") == 1
    assert budget("123456789.987654321") == 123_456_789_987_654_321


@pytest.mark.parametrize("text", ["", "30", "m", "-1s", "1y", "1 h"])
def test_other_durations_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        seconds(text)


@pytest.mark.parametrize("text", ["", "4", "Gi", "4gi", "4GiB"])
def test_other_amounts_of_memory_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an amount of memory"):
        mebibytes(text)


@pytest.mark.parametrize("text", ["", "$1", "1e3", "-1", "0.0000000001"])
def test_other_amounts_of_dollars_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not an amount of dollars"):
        budget(text)
