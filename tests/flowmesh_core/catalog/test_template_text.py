"""What templates print: of lists, objects and booleans their JSON, never Python's notation."""

from typing import Any

import pytest
from jinja2.exceptions import TemplateRuntimeError, UndefinedError

from flowmesh_core.catalog.template_text import NullInTemplateError
from flowmesh_core.catalog.templates import context, environment


def render(text: str, /, **row: Any) -> str:
    return environment().from_string(text).render(context(row))


ROW: dict[str, Any] = {
    "yes": True,
    "no": False,
    "some": ["a", None, 1, 2.5, True],
    "thing": {"name": "Zoë <b> & 'c'", "list": [1, {"deep": None}], "a": False},
    "number": 3,
    "share": 0.1,
    "text": "plain 'text' \"here\"",
}
SOME = '["a",null,1,2.5,true]'
THING = '{"a":false,"list":[1,{"deep":null}],"name":"Zoë <b> & \'c\'"}'


@pytest.mark.parametrize(
    ("template", "printed"),
    [
        ("{{ yes }} {{ no }} {{ number > 2 }}", "true false true"),
        ("{{ some }}", SOME),
        ("{{ thing }}", THING),
        ("{{ thing['list'] }}", '[1,{"deep":null}]'),
        ("{{ (1, 'b') }} {{ [] }} {{ {} }}", '[1,"b"] [] {}'),
        ("{{ number }} {{ share }} {{ text }}", "3 0.1 plain 'text' \"here\""),
        ("{{ some | tojson }} {{ thing | tojson }}", f"{SOME} {THING}"),
        ("{{ text | tojson }}", '"plain \'text\' \\"here\\""'),
        ("{{ none | tojson }} {{ yes | tojson }} {{ 2 | tojson }}", "null true 2"),
        ("{{ {'b': 1, 'a': [1]} | tojson(indent=1) }}", '{\n "a": [\n  1\n ],\n "b": 1\n}'),
        ("{{ 'it is ' ~ yes ~ some }}", f"it is true{SOME}"),
        ("{{ some[:1] | string }} {{ yes | string }}", '["a"] true'),
        ("{{ yes | upper }} {{ thing['list'] | trim }}", 'TRUE [1,{"deep":null}]'),
        ("{{ [yes, [1], 'x'] | join('; ') }}", "true; [1]; x"),
        ("{{ [{'k': no}, {'k': 2}] | join(',', 'k') }}", "false,2"),
        ("{{ some[3:] | map('string') | list }}", '["2.5","true"]'),
        ("{{ (text | tojson) + '<' }}", '"plain \'text\' \\"here\\""<'),
        ("{% if yes %}{{ some[0] }}{% endif %}", "a"),
        ("{% set x = [yes] %}{{ x == [true] }}{{ x[0] == 1 }}", "truetrue"),
    ],
)
def test_values_are_printed_as_json(template: str, printed: str) -> None:
    assert render(template, **ROW) == printed


@pytest.mark.parametrize(
    "template",
    [
        *("{{ none }}", "{{ 'a' ~ none }}", "{{ none | string }}", "{{ none | trim }}"),
        "{{ [1, none] | join }}",
    ],
)
def test_rendering_a_null_is_an_error(template: str) -> None:
    with pytest.raises(NullInTemplateError):
        render(template)


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ some | map('string') }}", "add `| list`"),
        ("{{ range(3) }}", "add `| list`"),
        ("{{ thing.items }}", "cannot be printed"),
        ("{{ raw }}", "bytes cannot be printed"),
        ("{{ [raw] }}", "bytes cannot be printed"),
        ("{{ [thing.items] }}", "cannot be printed"),
        ("{{ {(1, 2): 3} }}", "cannot be printed as JSON"),
        ("{{ [large] }}", "cannot be printed as JSON"),
    ],
)
def test_a_value_without_a_json_form_is_refused(template: str, reason: str) -> None:
    with pytest.raises(TemplateRuntimeError, match=reason):
        render(template, raw=b"a", large=float("inf"), **ROW)


def test_an_undefined_name_inside_a_list_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="missing"):
        render("{{ [missing] }}")


def test_equal_objects_are_printed_equally_whatever_the_order_of_their_keys() -> None:
    first, second = {"b": 1, "a": {"d": 1, "c": 2}}, {"a": {"c": 2, "d": 1}, "b": 1}
    assert render("{{ x }}", x=first) == render("{{ x }}", x=second)
