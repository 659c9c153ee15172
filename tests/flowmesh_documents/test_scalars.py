"""Plain YAML scalars: read where all YAML versions agree, refused elsewhere."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flowmesh_documents.scalars import RefusedScalarError, read_plain


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5e-6", 5e-6),
        ("1e5", 100000.0),
        ("-0.5", -0.5),
        (".5", 0.5),
        ("3.", 3.0),
        ("0", 0),
        ("-12", -12),
        ("+7", 7),
        ("0x1F", 31),
        ("true", True),
        ("False", False),
        ("~", None),
        ("", None),
        ("null", None),
        ("30m", "30m"),
        ("4Gi", "4Gi"),
        ("flowmesh.dev/v1alpha1", "flowmesh.dev/v1alpha1"),
        ("1.2.3", "1.2.3"),
        ("online", "online"),
        ("now", "now"),
        ("e5", "e5"),
        ("-", "-"),
    ],
)
def test_scalars_that_all_yaml_versions_read_alike_are_accepted(text: str, value: object) -> None:
    read = read_plain(text)
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    "text",
    [
        "on",
        "On",
        "OFF",
        "yes",
        "No",
        "y",
        "N",
        "010",
        "-007",
        "08",
        "0o17",
        "0b11",
        "1_000",
        "1:30",
        "12:30:45",
        "1:30.5",
        "2026-01-01",
        ".inf",
        "-.INF",
        ".nan",
        "1e999",
        "=",
        "<<",
        "9223372036854775808",
        "0x8000000000000000",
        "-" + "9" * 5000,
        "010.5",
        "0x1_F",
    ],
)
def test_scalars_that_yaml_versions_read_differently_are_refused_unless_quoted(text: str) -> None:
    with pytest.raises(RefusedScalarError, match=f'(write|true, false).*"{text}"'):
        read_plain(text)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_every_finite_float_reads_back_as_itself(value: float) -> None:
    assert float(read_plain(repr(value))) == value


@given(st.integers(-(2**63), 2**63 - 1))
def test_every_64_bit_integer_reads_back_as_itself(value: int) -> None:
    assert read_plain(str(value)) == value
