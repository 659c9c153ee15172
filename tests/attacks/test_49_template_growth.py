"""Attacker: T1, a tenant that may create workflows.

Action: writes templates that fold, double, square or repeat until memory is full.
Must not happen: the control plane computes any of it, or a rendering makes more than it may.
"""

from pathlib import Path
from typing import Any, NoReturn

import pytest
from jinja2.exceptions import SecurityError
from tests.attacks.one_fabric import fabric_at, nothing_compiles_here
from tests.attacks.renderings import render
from tests.flowmesh_control.fabric import Fabric, workflow

from flowmesh_control.evaluators.compilers import SandboxedCompiler
from flowmesh_core.catalog.chat_templates import chat_environment
from flowmesh_core.catalog.template_meter import COPIED_MAX, MADE_MAX, PRINTED_MAX
from flowmesh_core.catalog.templates import environment, undeclared

LETTERS = "a" * 1000
FORTY = "{% set ns = namespace(x=START) %}{% for i in range(40) %}STEP{% endfor %}{{ ns.x }}"


def _grown(start: str, step: str) -> str:
    """What a step of this form makes of the start in forty turns."""
    return FORTY.replace("START", start).replace("STEP", step)


def _each(expression: str, start: str = "'ab'") -> str:
    return _grown(start, "{% set ns.x = " + expression + " %}")


CONSTANTS = {
    "a chain of replace": "{{ 'a'" + f"|replace('a', '{LETTERS}')" * 4 + " }}",
    "slice": "{{ [1]|slice(9000000000)|list }}",
    "batch": "{{ [1]|batch(9000000000, 'a')|list }}",
    "repetition": "{{ 'a' * 9000000000 }}",
    "a power": "{{ 9 ** 999999999 }}",
    "rounding": "{{ 5|round(-999999999) }}",
    "rounding up": "{{ 5|round(999999999, 'ceil') }}",
    "indent": "{{ ('a\n' * 1000)|indent(900000) }}",
    "wordwrap": "{{ ('a ' * 1000)|wordwrap(1, wrapstring='b' * 100000) }}",
    "wordwrap of one word": "{{ ('a' * 900000)|wordwrap(1) }}",
    "join": "{{ range(10000)|join('a' * 100000) }}",
    "join of a generator": "{{ range(10000)|map('string')|join('a' * 100000) }}",
    "the method join": "{{ ('a' * 100000).join(['b'] * 10000) }}",
    "the method replace": "{{ ('a' * 10000).replace('a', 'b' * 10000) }}",
    "the method replace of nothing": "{{ ('a' * 10000).replace('', 'b' * 10000) }}",
    "the method format": "{{ ('{0}' * 10000).format('b' * 10000) }}",
    "the method format_map": "{{ ('{a}' * 10000).format_map({'a': 'b' * 10000}) }}",
    "the method translate": "{{ ('a' * 10000).translate({97: 'b' * 10000}) }}",
    "fromkeys": "{{ {}.fromkeys(range(10000), 'b' * 10000) }}",
    "%": "{{ ('%(a)s' * 10000) % {'a': 'b' * 10000} }}",
    "the filter format": "{{ ('%(a)s' * 10000)|format(a='b' * 10000) }}",
    "tojson": "{{ {'a': [1] * 10000}|tojson(indent=100000) }}",
    "urlize": "{{ ('a.com ' * 10000)|urlize(target='b' * 10000) }}",
    "lists of ranges": "{% for i in range(99) %}{{ range(99999)|list|length }}{% endfor %}",
    "a long macro": (
        "{% macro m() %}{% for i in range(90000) %}" + LETTERS + "{% endfor %}{% endmacro %}"
        "{% set x = m() %}"
    ),
    "a long block": "{% set x %}{% for i in range(90000) %}" + LETTERS + "{% endfor %}{% endset %}",
    "a block by its name": (
        "{% if 0 %}{% block b %}{% for i in range(90000) %}"
        + LETTERS
        + "{% endfor %}{% endblock %}{% endif %}{{ self.b() | length }}"
    ),
    "a filtered block": (
        "{% filter length %}{% for i in range(90000) %}" + LETTERS + "{% endfor %}{% endfilter %}"
    ),
}
GROWING = {
    "+": _each("ns.x + ns.x"),
    "~": _each("ns.x ~ ns.x"),
    "*": _each("ns.x * 2"),
    "+ of lists": _each("ns.x + ns.x", "[1]"),
    "+ of tuples": _each("ns.x + ns.x", "(1, 2)"),
    "* of lists": _each("ns.x * 2", "[1]"),
    "squaring": _each("ns.x * ns.x", "9"),
    "powers": _each("ns.x ** 2", "9"),
    "replace": _each("ns.x|replace('a', 'aa')"),
    "join": _each("[ns.x, ns.x]|join"),
    "format": _each("'%s%s'|format(ns.x, ns.x)"),
    "%": _each("'%s%s' % (ns.x, ns.x)"),
    "the method format": _each("'{0}{0}'.format(ns.x)"),
    "the method join": _each("ns.x.join(['b', 'b', 'b'])"),
    "the method replace": _each("ns.x.replace('a', 'aa')"),
    "indent": _each("(ns.x ~ '\n' ~ 'b')|indent(ns.x|length)"),
    "lists in lists": _each("[ns.x, ns.x]"),
    "tuples in tuples": _each("(ns.x, ns.x)"),
    "maps in maps": _each("{1: ns.x, 2: ns.x}"),
    "dict in dict": _each("dict(a=ns.x, b=ns.x)"),
    "batches in batches": _each("[ns.x]|batch(2, ns.x)|first"),
    "sums of lists": _each("[ns.x, ns.x]|sum(start=[])", "[1]"),
    "quotes in JSON": _each("ns.x|tojson", "'\"'"),
    "quotes in texts of lists": _each("[ns.x]|string", "'\"\\''"),
    "quotes printed nicely": _each("[ns.x]|pprint", "'\"\\''"),
    "blocks": _grown("'ab'", "{% set ns.x %}{{ ns.x }}{{ ns.x }}{% endset %}"),
    "macros": "{% macro m(x) %}{{ x }}{{ x }}{% endmacro %}" + _each("m(ns.x)"),
    "calls": (
        "{% macro m(x) %}{{ caller() }}{{ caller() }}{% endmacro %}"
        + "{% call m(1) %}" * 40
        + "ab"
        + "{% endcall %}" * 40
    ),
}
HONEST = {
    "{% for r in rows %}{{ r.a }}: {{ r.b }}{{ ', ' if not loop.last }}{% endfor %}": "x: 1, y: 2",
    "{{ rows | map(attribute='a') | join('-') }}": "x-y",
    "{{ rows | sum(attribute='b') }} {{ 0.1 + 0.2 }} {{ [[1], [2]] | sum(start=[]) }}": (
        "3 0.30000000000000004 [1,2]"
    ),
    "{{ 'a b' | replace('a', 'c') | replace(old='b', new='d') | upper }}": "C D",
    "{{ 'one\ntwo' | indent(width=2, first=true) }}": "  one\n  two",
    "{{ 'a bc def' | wordwrap(4, wrapstring='|') }}": "a bc|def",
    "{% for b in [1, 2, 3] | batch(2, 'x') %}{{ b | join }};{% endfor %}": "12;3x;",
    "{% for b in [1, 2, 3] | slice(2, fill_with='x') %}{{ b | join }};{% endfor %}": "12;3x;",
    "{{ {'a': [1, 'é']} | tojson }} {{ {'a': 1} | tojson(indent=2) }}": (
        '{"a":[1,"é"]} {\n  "a": 1\n}'
    ),
    "{{ 'ab' ~ 1 ~ 2.5 ~ [1] ~ true }} {{ ('a' ~ 'b') | length }}": "ab12.5[1]true 2",
    "{% set ns = namespace(n=0) %}{% for r in rows %}{% set ns.n = ns.n + r.b %}{% endfor %}"
    "{{ ns.n }}": "3",
    "{% set x %}{{ rows | length }} rows{% endset %}{{ x | title }}": "2 Rows",
    "{% macro m(r, d='?') %}<{{ r.a }}{{ d }}>{% endmacro %}{{ m(rows[0]) }}": "<x?>",
    "{% filter upper %}a{{ 'b' }}{% endfilter %}": "AB",
    "{{ 'a,b'.split(',') | list }} {{ ', '.join(['a', 'b']) }} {{ 'ab'.replace('a', '') }}": (
        '["a","b"] a, b b'
    ),
    "{{ ', '.join(rows | map(attribute='a')) }} {{ '%s and %s' % ('a', 2) }}": "x, y a and 2",
    "{{ 7 // 2 }} {{ 7 % 4 }} {{ 2 ** 64 }} {{ 1 ** 5000 }} {{ 3.14159 | round(2) }}": (
        "3 3 18446744073709551616 1 3.14"
    ),
    "{% autoescape true %}{{ '<' ~ rows[0].a ~ ('<i>' | safe) }}{% endautoescape %}": ("&lt;x<i>"),
    "{{ rows | tojson | length }} {{ rows | string | length }}": "33 33",
    "{{ {'a': 1, 'b': 2} | xmlattr }} {{ 'see www.a.com' | urlize }}": (
        ' a="1" b="2" see <a href="https://www.a.com" rel="noopener">www.a.com</a>'
    ),
    "{{ dict(a=1, b=2) | dictsort }} {{ [3, 1] | sort | first }} {{ [1, 1] | unique | list }}": (
        '[["a",1],["b",2]] 1 [1]'
    ),
    "{% set a, b = 1, 2 %}{{ (a, b) }} {{ [a, b] + [3] }} {{ [0] * 2 }}": "[1,2] [1,2,3] [0,0]",
    "{% block b %}in{% endblock %} {{ self.b() }}": "in in",
    "{{ 'abc'[1:] }} {{ [1, 2, 3][:-1] }} {{ rows[0]['a'] }} {{ 'abc'[::-1] | first }}": (
        "bc [1,2] x c"
    ),
    "{{ ' a ' | trim | default('b') }} {{ [2, 1] | sort | join }} {{ 'ab' | length }}": "a 12 2",
    "{{ rows | groupby('a') | map('first') | list }} {{ 'a b' | wordcount }}": '["x","y"] 2',
    "{{ 'A' | lower }} {{ missing | default('none') }} {{ 3.7 | int }} {{ '4' | float }}": (
        "a none 3 4.0"
    ),
    "{{ rows | selectattr('b', 'gt', 1) | map(attribute='a') | first }} {{ [1, 2] | max }}": "y 2",
}


COPYING = {
    "a filter": "text | upper",
    "a filter by map": "[text] | map('upper') | first",
    "a method": "text.upper()",
    "a slice": "text[1:]",
    "a slice of a list": "numbers[1:]",
    "a copy": "numbers.copy()",
    "a macro": "m()",
}


@pytest.mark.parametrize("expression", COPYING.values(), ids=COPYING)
def test_repeated_copies_count_against_the_limit(expression: str) -> None:
    text = (
        "{% macro m() %}{{ text }}{% endmacro %}{% for i in range(90000) %}"
        "{% set x = " + expression + " %}{% endfor %}"
    )
    with pytest.raises(SecurityError) as caught:
        render(text, {"text": "a" * 2_000_000, "numbers": [1] * 2_000_000})
    meter = caught.value.meter  # type: ignore[attr-defined]
    assert meter.copied <= COPIED_MAX + 1
    assert meter.turns <= 200
    once = text.replace("90000", "2")
    _, meter = render(once, {"text": "a" * 2_000_000, "numbers": [1] * 2_000_000})
    assert meter.made <= 4


@pytest.mark.parametrize(
    "text", [*CONSTANTS.values(), *GROWING.values()], ids=[*CONSTANTS, *GROWING]
)
def test_the_control_plane_evaluates_no_part_of_a_template(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed = _watched(monkeypatch)

    def refused(*_: Any, **__: Any) -> NoReturn:
        raise AssertionError("compiled")

    monkeypatch.setattr("jinja2.environment.compile", refused, raising=False)
    assert undeclared.__wrapped__(text) == ("", ())
    assert computed == []


async def test_a_multi_tenant_control_plane_does_not_parse_templates_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing_compiles_here(monkeypatch)
    async with fabric_at(tmp_path, sandboxed=True) as fabric:
        assert await _status(fabric, "{{ a ~ b }}") == 201
        assert await _status(fabric, "{% for %}") == 422
        assert await _status(fabric, *CONSTANTS.values(), *GROWING.values()) in (201, 422)
        compiler = fabric.control._started().evaluators.compiler
        assert isinstance(compiler, SandboxedCompiler)
        assert sum(p.started for p in compiler.processes) == 1


async def _status(fabric: Fabric, *templates: str) -> int:
    """Submits a workflow with these templates; returns the status of the response."""
    steps = [
        {
            "name": f"s{n}",
            "uses": "llm.generate",
            "inputs": {"rows": "inputs.rows", "model": "inputs.model"},
            "with": {"prompt": text},
        }
        for n, text in enumerate(templates)
    ]
    inputs = {"rows": {"rows": [{"a": "x", "b": 1}]}, "model": {"model": "hf://a/b"}}
    headers = {"Authorization": f"Bearer {fabric.token}"}
    document = workflow("templates", {"inputs": inputs, "steps": steps})
    url = f"{fabric.control.url}/v1/runs"
    async with fabric.http.post(url, json={"document": document}, headers=headers) as response:
        return response.status


@pytest.mark.parametrize(
    "text", [*CONSTANTS.values(), *GROWING.values()], ids=[*CONSTANTS, *GROWING]
)
def test_an_engine_host_folds_no_constants_and_renders_within_bounds(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        computed = _watched(patched)
        environment().from_string(text)
        assert computed == []
    with pytest.raises(SecurityError) as caught:
        render(text, {})
    meter = caught.value.meter  # type: ignore[attr-defined]
    assert meter.made <= MADE_MAX + 1
    assert meter.printed <= PRINTED_MAX + 1


@pytest.mark.parametrize(
    "text", [*CONSTANTS.values(), *GROWING.values()], ids=[*CONSTANTS, *GROWING]
)
def test_a_chat_template_of_a_user_renders_within_the_same_bounds(text: str) -> None:
    with pytest.raises(SecurityError) as caught:
        render(text, {}, chat_environment())
    meter = caught.value.meter  # type: ignore[attr-defined]
    assert meter.made <= MADE_MAX + 1
    assert meter.printed <= PRINTED_MAX + 1


@pytest.mark.parametrize(("text", "expected"), HONEST.items(), ids=HONEST)
def test_honest_templates_render(text: str, expected: str) -> None:
    rows = [{"a": "x", "b": 1}, {"a": "y", "b": 2}]
    rendered, meter = render(text, {"rows": rows})
    assert rendered == expected
    assert meter.made < 1000
    assert undeclared(text)[0] == ""


def _watched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of filters that are called from now on."""
    called: list[str] = []
    env = environment()

    def watch(name: str, function: Any) -> Any:
        def watched(*args: Any, **kwargs: Any) -> Any:
            called.append(name)
            return function(*args, **kwargs)

        if hasattr(function, "jinja_pass_arg"):
            watched.jinja_pass_arg = function.jinja_pass_arg  # type: ignore[attr-defined]
        return watched

    monkeypatch.setattr(env, "filters", {n: watch(n, f) for n, f in env.filters.items()})
    monkeypatch.setattr(type(env), "call_binop", lambda *_: called.append("operator"))
    return called
