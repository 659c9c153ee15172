"""Types and values of parameters, as the command line and the Python client set them."""

from typing import Any

import pytest

from flowmesh_documents.parameters import (
    ParameterError,
    default_of,
    filled,
    is_declaration,
    parameter_values,
    read_value,
    type_of,
    type_problem,
    with_value,
)

INTEGER = {"type": "integer", "default": 4, "minimum": 1}


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"type": "integer", "required": True}, True),
        ({"type": "string"}, True),
        ({"type": "list", "items": "number", "default": [], "doc": "Rates"}, True),
        ({"type": "integer", "default": 4, "minimun": 1}, True),  # a mistake in it is reported
        ({"type": "object", "properties": {}, "required": ["a"]}, False),  # a JSON schema
        ({"type": "odd", "default": 1}, False),
        ({"type": ["string"]}, False),
        ({"kind": "integer"}, False),
        (4, False),
        (None, False),
        ([], False),
    ],
)
def test_a_mapping_with_a_type_and_known_fields_is_a_declaration(
    entry: Any, *, expected: bool
) -> None:
    assert is_declaration(entry) is expected


@pytest.mark.parametrize(
    ("entry", "kind"),
    [
        (INTEGER, "integer"),
        (4, "integer"),
        (4.0, "number"),
        (True, "boolean"),
        ("4", "string"),
        ([4], "list"),
        ({"a": 4}, "object"),
        (None, ""),
    ],
)
def test_the_type_of_a_plain_value_is_its_own(entry: Any, kind: str) -> None:
    assert type_of(entry) == kind


@pytest.mark.parametrize(
    ("entry", "text", "value"),
    [
        (INTEGER, "8", 8),
        (4, " 8 ", 8),
        ({"type": "number", "required": True}, "8", 8),
        (0.5, "1e-5", 1e-5),
        ("a", "8", "8"),
        ("a", "yes", "yes"),
        ("a", "", ""),
        ({"type": "string", "required": True}, "2024-01-01", "2024-01-01"),
        (False, "true", True),
        ([1], "[1e-5, 1e-4]", [1e-5, 1e-4]),
        ({"type": "list"}, '["a", "b"]', ["a", "b"]),
        ({"a": 1}, "{a: 2, b: [x]}", {"a": 2, "b": ["x"]}),
        (None, "8", 8),
        (None, "eight", "eight"),
        ({"type": "integer", "required": False}, "null", None),
        (INTEGER, "8.0", 8),
        (INTEGER, "1e3", 1000),
        ({"type": "list", "items": "integer"}, "[1.0, 2]", [1, 2]),
    ],
)
def test_a_text_is_read_by_the_type_of_the_parameter(entry: Any, text: str, value: Any) -> None:
    found = read_value("k", entry, text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("entry", "text", "message"),
    [
        (INTEGER, "x", "k is an integer (default 4), got 'x'"),
        (4, "x", "k is an integer (default 4), got 'x'"),
        (4, "4.5", "k is an integer (default 4), got '4.5'"),
        (INTEGER, "1e19", "k is an integer (default 4), got '1e19'"),
        (4, "", "k is an integer (default 4), got ''"),
        (0.5, "half", "k is a number (default 0.5), got 'half'"),
        (True, "1", "k is a boolean (default true), got '1'"),
        ([1], "1,2", "k is a list (default [1]), got '1,2'"),
        ([1], "[1", "k is a list (default [1]), got '[1'"),
        ({"type": "object", "required": True}, "[1]", "k is an object, got '[1]'"),
        (True, "yes", "k is a boolean (default true): yes is a boolean in YAML 1.1 and a string"),
        (4, "x" * 99, f"k is an integer (default 4), got '{'x' * 39}…"),
        (None, "1e999", "k is any value: 1e999 is too large a number"),
    ],
)
def test_a_text_of_another_type_is_refused_with_the_type_and_the_default(
    entry: Any, text: str, message: str
) -> None:
    with pytest.raises(ParameterError) as refused:
        read_value("k", entry, text)
    assert str(refused.value).startswith(message)


def test_a_value_of_another_type_is_refused_and_an_integer_is_a_number() -> None:
    assert type_problem("k", INTEGER, "8") == "k is an integer (default 4), got '8'"
    assert type_problem("k", 0.5, 1) == ""
    assert type_problem("k", INTEGER, 8.0) == ""
    assert type_problem("k", 4, True) == "k is an integer (default 4), got true"
    assert type_problem("k", None, object) == ""
    assert type_problem("k", {"type": "string", "required": False}, None) == ""


@pytest.mark.parametrize(
    ("declared", "value", "stored"),
    [
        ("integer", 1.0, 1),
        ("integer", -0.0, 0),
        ("integer", 0.5, 0.5),
        ("integer", 2.0**63, 2.0**63),
        ("integer", True, True),
        ("number", 1.0, 1.0),
        ("object", {"a": 1.0}, {"a": 1.0}),
    ],
)
def test_a_declared_integer_has_integers_for_floats_without_a_fraction(
    declared: str, value: Any, stored: Any
) -> None:
    (found,) = default_of({"type": declared, "default": value})
    assert (type(found), found) == (type(stored), stored)


def test_a_plain_float_stays_a_number_which_other_floats_may_replace() -> None:
    assert default_of(1.0) == (1.0,)
    assert type(default_of(1.0)[0]) is float
    assert read_value("k", 1.0, "0.5") == 0.5
    assert type(with_value(1.0, 2.0)) is float
    assert type(with_value(4, 2.0)) is int


def test_a_set_value_takes_the_place_of_the_default_and_a_declaration_stays_one() -> None:
    declared = {"type": "integer", "required": True, "minimum": 1}
    assert with_value(4, 8) == 8
    assert with_value(declared, 8) == {"type": "integer", "minimum": 1, "default": 8}
    assert declared["required"] is True
    assert default_of(with_value(declared, 8)) == (8,)
    optional = {"type": "integer", "required": False}
    assert with_value(optional, 8) == {"type": "integer", "default": 8}
    assert with_value(optional, read_value("k", optional, "null")) == {**optional, "default": None}


@pytest.mark.parametrize("entry", [None, {}, {"type": "x"}])
def test_an_object_that_looks_like_a_declaration_is_the_value_of_a_parameter(entry: Any) -> None:
    value = {"type": "integer", "default": 5}
    assert default_of(with_value(entry, value)) == (value,)


def test_parameters_that_are_missing_have_no_value_and_optional_ones_are_null() -> None:
    params = {"a": 1, "b": {"type": "string"}, "c": {"type": "string", "required": False}}
    assert parameter_values(params) == {"a": 1, "c": None}
    assert parameter_values([1]) == {}
    assert filled({"x": ["./${params.a}", "${params.b}"]}, params) == {"x": ["./1", "${params.b}"]}
