"""Templates over rows: pure, and closed to everything but the row."""

import pytest
from jinja2 import TemplateSyntaxError, UndefinedError
from jinja2.exceptions import SecurityError, TemplateRuntimeError

from flowmesh_core.catalog.template_text import NullInTemplateError
from flowmesh_core.catalog.templates import context, environment


def _render(text: str, row: dict[str, object]) -> str:
    return environment().from_string(text).render(context(row))


def test_columns_are_variables_and_the_row_variable_contains_all_of_them() -> None:
    row = {"question": "1+1?", "my column": 3}
    assert _render("Q: {{ question }}\n{{ row['my column'] }}\n", row) == "Q: 1+1?\n3\n"


def test_a_column_named_row_keeps_its_value() -> None:
    assert _render("{{ row }}", {"row": "r"}) == "r"


def test_an_undefined_name_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="missing"):
        _render("{{ missing }}", {})


@pytest.mark.parametrize(
    "text",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ row.__class__.__init__.__globals__ }}",
        "{{ row.clear() }}",
        "{% for i in range(10**9) %}x{% endfor %}",
    ],
)
def test_python_objects_and_long_loops_are_out_of_reach(text: str) -> None:
    with pytest.raises((SecurityError, UndefinedError, OverflowError)):
        _render(text, {"a": 1})


def test_templates_have_no_random_functions() -> None:
    with pytest.raises((TemplateSyntaxError, TemplateRuntimeError)):
        _render("{{ [1, 2] | random }}", {})
    with pytest.raises(UndefinedError):
        _render("{{ lipsum() }}", {})


@pytest.mark.parametrize("text", ["'a' * 10 ** 10", "[1] * 99999999", "9 ** 9999999"])
def test_a_template_cannot_exhaust_memory_by_multiplying(text: str) -> None:
    with pytest.raises(SecurityError, match="of at most"):
        _render("{{ " + text + " }}", {})


def test_a_template_may_multiply_small_values() -> None:
    assert _render("{{ '-' * 3 }} {{ 2 ** 10 }} {{ 3 * 4 }}", {}) == "--- 1024 12"


@pytest.mark.parametrize(
    "text",
    [
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{% for a in range(9999) recursive %}{{ loop(range(9999)) if loop.depth < 9 }}{% endfor %}",
        "{% macro f(n) %}{{ f(n - 1) ~ f(n - 1) if n }}{% endmacro %}{{ f(40) }}",
        "{% for a in range(9) %}{% block b scoped %}{% for c in range(99999) %}{% endfor %}"
        "{% endblock %}{% endfor %}",
    ],
)
def test_a_template_cannot_block_its_host_with_endless_loops(text: str) -> None:
    with pytest.raises(SecurityError, match="iterations of loops and calls for one row"):
        environment().from_string(text).render()


def test_a_counted_loop_supports_every_loop_feature() -> None:
    text = (
        "{% for n in rows if n > 1 %}{{ loop.index }}/{{ loop.length }}{{ loop.last }} {% else %}"
        "none{% endfor %}"
    )
    render = environment().from_string(text).render
    assert render(rows=[1, 2, 3]) == "1/2false 2/2true "
    assert render(rows=[1]) == "none"
    tree = "{% for n in rows recursive %}{{ n[0] }}{{ loop(n[1]) }}{% endfor %}"
    assert environment().from_string(tree).render(rows=[(1, [(2, [])]), (3, [])]) == "123"


@pytest.mark.parametrize(
    "text",
    [
        "{{ 'a'|center(20000000) }}",
        "{{ 'a'.ljust(20000000) }}",
        "{{ 'a'.zfill(width=20000000) }}",
        "{{ '%020000000d' % 3 }}",
        "{{ '%*d' % (20000000, 3) }}",
        "{{ '%20000000d'|format(3) }}",
        "{{ '{:>20000000}'.format('a') }}",
        "{{ '{:>{}}'.format('a', 20000000) }}",
    ],
)
def test_a_template_cannot_pad_a_text_beyond_its_bounds(text: str) -> None:
    with pytest.raises(SecurityError, match="a width of 20000000"):
        environment().from_string(text).render()


def test_texts_are_padded_and_formatted_within_bounds() -> None:
    text = "{{ '%5.2f' % 3.14159 }}|{{ 7 % 3 }}|{{ '{:>5}'.format('a') }}|{{ 'x'|center(5) }}"
    assert environment().from_string(text).render() == " 3.14|1|    a|  x  "


@pytest.mark.parametrize("text", ["{{ a }}", "{{ row.a }}", "{{ none }}", "x{{ b if false }}"])
def test_rendering_a_null_is_an_error(text: str) -> None:
    row = {"a": None, "b": 1}
    template = environment().from_string(text)
    if "if false" in text:
        assert template.render(context(row)) == "x"
        return
    with pytest.raises(NullInTemplateError):
        template.render(context(row))
    assert environment().from_string("{{ a or 'nothing' }}").render(context(row)) == "nothing"
