import json
import math
import unicodedata
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowmesh_core.errors import IdentityError
from flowmesh_core.identity import canonical_bytes, decode

TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=8)
INTEGERS = st.integers(min_value=-(2**63), max_value=2**63 - 1)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
KEYS = TEXT.map(lambda s: unicodedata.normalize("NFC", s))
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | INTEGERS | FLOATS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
RELAXED = settings(deadline=None)


def typed(value: Any) -> Any:
    """A value in which equality tells types apart, as canonical forms must."""
    if isinstance(value, dict):
        return ("object", {k: typed(v) for k, v in value.items()})
    if isinstance(value, list):
        return ("list", [typed(v) for v in value])
    if isinstance(value, float):
        return ("float", (value + 0.0).hex())
    return (type(value).__name__, value)


def shuffled(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: shuffled(v) for k, v in reversed(value.items())}
    return [shuffled(v) for v in value] if isinstance(value, list) else value


@RELAXED
@given(VALUES)
def test_a_canonical_form_reads_back_as_the_same_value(value: Any) -> None:
    assert typed(decode(canonical_bytes(value))) == typed(value)


@RELAXED
@given(VALUES)
def test_the_order_of_keys_does_not_show(value: Any) -> None:
    assert canonical_bytes(shuffled(value)) == canonical_bytes(value)


@RELAXED
@given(VALUES, VALUES)
def test_two_forms_are_equal_only_if_the_values_are(a: Any, b: Any) -> None:
    assert (canonical_bytes(a) == canonical_bytes(b)) == (typed(a) == typed(b))


@RELAXED
@given(FLOATS)
def test_a_float_is_spelled_as_repr_and_never_as_an_integer(x: float) -> None:
    written = canonical_bytes(x)
    assert written == repr(x + 0.0).encode()
    assert set(b".e") & set(written)
    assert canonical_bytes({"k": [x]}) == b'{"k":[%s]}' % written


@pytest.mark.parametrize("spelling", ["1e-5", "0.00001", "10e-6", "0.1e-4"])
def test_all_spellings_of_a_number_are_one_value(spelling: str) -> None:
    assert canonical_bytes({"lr": json.loads(spelling)}) == b'{"lr":1e-05}'


def test_types_are_distinguished_by_syntax() -> None:
    forms = [canonical_bytes(v) for v in (1, 1.0, "1", True, "true", None, "null", [], {}, [1], "")]
    assert len(set(forms)) == len(forms)


def test_minus_zero_is_zero_at_every_depth() -> None:
    assert canonical_bytes({"a": -0.0, "b": [-0.0, {"c": -0.0}]}) == canonical_bytes(
        {"a": 0.0, "b": [0.0, {"c": 0.0}]}
    )


def test_strings_are_not_normalised_but_names_are() -> None:
    composed, decomposed = "é", "e\u0301"
    assert canonical_bytes(composed) != canonical_bytes(decomposed)
    assert canonical_bytes({composed: 1}) == canonical_bytes({decomposed: 1})


@pytest.mark.parametrize(
    ("value", "where", "reason"),
    [
        ({"a": {"b": math.nan}}, "a.b", "nan"),
        ([1, math.inf], "[1]", "inf"),
        ({"a": [2**63]}, "a[0]", "64 bits"),
        (-(2**63) - 1, "", "64 bits"),
        (2**64, "", "64 bits"),
        ({"a": "\ud800"}, "a", "surrogate"),
        ({"\ud800": 1}, "ud800", "surrogate"),
        ({"a": b"x"}, "a", "bytes"),
        ({"a": {1, 2}}, "a", "set"),
        ({"a": {1: 2}}, "a", "not a string"),
        ({"x": {"é": 1, "e\u0301": 2}}, "x", "same name"),
        ({"a": orjson.Fragment(b"1")}, "a", "Fragment"),
    ],
)
def test_a_value_without_a_canonical_form_is_refused_with_its_path(
    value: Any, where: str, reason: str
) -> None:
    with pytest.raises(IdentityError) as caught:
        canonical_bytes(value)
    assert where in caught.value.where
    assert reason in str(caught.value)


def test_endless_nesting_is_refused() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(IdentityError, match="nested deeper"):
        canonical_bytes(value)


def test_bytes_that_are_not_json_are_refused() -> None:
    with pytest.raises(IdentityError, match="not a canonical form"):
        decode(b"{")
