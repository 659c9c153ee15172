import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.flowmesh_core.identity.engines import GENERATE

from flowmesh_core.catalog.contract import Param, ParamType
from flowmesh_core.errors import IdentityError
from flowmesh_core.identity import canonical_bytes, coerce, effective_params


def read(kind: ParamType, value: Any) -> Any:
    return coerce(Param("p", kind, default="unused"), value, where="with.p")


@pytest.mark.parametrize(
    ("kind", "given_value", "wanted"),
    [
        (ParamType.NUMBER, 1, 1.0),
        (ParamType.NUMBER, 1e-5, 0.00001),
        (ParamType.NUMBER, -0.0, 0.0),
        (ParamType.INTEGER, 1.0, 1),
        (ParamType.INTEGER, 7, 7),
        (ParamType.BOOLEAN, False, False),
        (ParamType.STRING, "1e-5", "1e-5"),
        (ParamType.LIST, (1.0, 0.5, ["a"]), [1, 0.5, ["a"]]),
        (ParamType.OBJECT, {"b": 2.0, "a": None}, {"a": None, "b": 2}),
        (ParamType.ANY, 3.0, 3),
    ],
)
def test_a_value_is_read_as_the_type_of_its_parameter(
    kind: ParamType, given_value: Any, wanted: Any
) -> None:
    result = read(kind, given_value)
    assert canonical_bytes(result) == canonical_bytes(wanted)
    assert math.copysign(1, result) == 1 if isinstance(result, float) else True


@pytest.mark.parametrize(
    ("kind", "value", "reason"),
    [
        (ParamType.NUMBER, "1e-5", "expected a number, got the string '1e-5'; write it without"),
        (ParamType.NUMBER, True, "expected a number, got the boolean true"),
        (ParamType.NUMBER, math.nan, "nan has no canonical form"),
        (ParamType.NUMBER, 2**53 + 1, "not exact"),
        (ParamType.NUMBER, 10**400, "not exact"),
        (ParamType.INTEGER, 1.5, "expected an integer"),
        (ParamType.INTEGER, math.inf, "expected an integer"),
        (ParamType.INTEGER, False, "expected an integer"),
        (ParamType.INTEGER, "3", "expected an integer, got the string '3'"),
        (ParamType.INTEGER, 2**63, "64 bits"),
        (ParamType.BOOLEAN, 1, "expected true or false"),
        (ParamType.BOOLEAN, "yes", "expected true or false"),
        (ParamType.STRING, 5, "expected a string, got the integer 5; quote it"),
        (ParamType.LIST, "ab", "expected a list"),
        (ParamType.OBJECT, [], "expected an object"),
        (ParamType.STRING, None, "expected a string, got null"),
    ],
)
def test_another_type_is_refused_with_path_reason_and_remedy(
    kind: ParamType, value: Any, reason: str
) -> None:
    with pytest.raises(IdentityError) as caught:
        read(kind, value)
    assert caught.value.where == "with.p"
    assert reason in str(caught.value)


def test_an_error_inside_a_list_names_the_element() -> None:
    with pytest.raises(IdentityError, match=r"with\.p\[1\]\.x: "):
        read(ParamType.LIST, [0, {"x": math.inf}])


@given(st.integers(min_value=-(2**53), max_value=2**53))
@settings(deadline=None)
def test_an_integer_and_its_float_are_one_value_under_every_type(n: int) -> None:
    for kind in (ParamType.NUMBER, ParamType.INTEGER, ParamType.ANY):
        assert canonical_bytes(read(kind, n)) == canonical_bytes(read(kind, float(n)))


def test_a_coerced_value_is_not_changed_by_another_coercion() -> None:
    once = effective_params(GENERATE, {"prompt": "x", "stop": [1.0, "a"], "schema": {"a": 1.5}})
    assert canonical_bytes(effective_params(GENERATE, once)) == canonical_bytes(once)


def test_defaults_are_filled_in_and_typed() -> None:
    params = effective_params(GENERATE, {"prompt": "x"})
    assert params["temperature"] == 1.0
    assert type(params["temperature"]) is float
    assert params["schema"] is None
    assert set(params) == {p.name for p in GENERATE.params}


@pytest.mark.parametrize(
    ("given_params", "message"),
    [
        ({"prompt": "x", "temprature": 1}, "with.temprature: llm.generate has no parameter"),
        ({"prompt": "x", "temprature": 1}, "did you mean 'temperature'?"),
        ({}, "llm.generate needs the parameter 'prompt'; add prompt: a string"),
        ({"prompt": "x", "samples": 0}, "with.samples: 0 is less than the least allowed 1"),
        ({"prompt": "x", "samples": 2000}, "with.samples: 2000 is more than the most allowed 1024"),
        ({"prompt": "x", "guided": "xml"}, "with.guided: 'xml' is not allowed; use one of 'none'"),
    ],
)
def test_wrong_parameters_are_named_with_a_remedy(
    given_params: dict[str, Any], message: str
) -> None:
    with pytest.raises(IdentityError) as caught:
        effective_params(GENERATE, given_params)
    assert message in str(caught.value)


def test_true_does_not_match_the_choice_one() -> None:
    param = Param("p", ParamType.ANY, choices=(1, 2))
    assert coerce(param, 1.0) == 1
    with pytest.raises(IdentityError):
        coerce(param, True)
