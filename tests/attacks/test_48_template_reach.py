"""Attacker: T1, a tenant that may create workflows.

Action: writes templates that reach for Python's objects, turn without end, or pad texts.
Must not happen: an attribute is read, more than 100,000 turns are made, or a wide text is.
"""

import pytest
from jinja2.exceptions import SecurityError, UndefinedError
from tests.attacks.renderings import render

from flowmesh_core.catalog.template_meter import MADE_MAX, TURNS_MAX
from flowmesh_core.catalog.templates import undeclared

REACHES = [
    "{{ ''.__class__.__mro__ }}",
    "{{ row.__class__.__init__.__globals__ }}",
    "{{ ''['__class__'] }}",
    "{{ ''|attr('__class__') }}",
    "{{ [''] | map(attribute='__class__') | first }}",
    "{{ '{0.__class__}'.format(row) }}",
    "{{ '{a.__class__}'.format_map({'a': row}) }}",
    "{{ ('{0.__class__}' | safe).format(row) }}",
    "{{ row.clear() }}",
    "{{ row.text.append(1) }}",
    "{{ self.__init__.__globals__ }}",
    "{{ cycler.__init__.__globals__ }}",
    "{{ joiner.__init__.__globals__ }}",
    "{{ namespace.__init__.__globals__ }}",
    "{% macro m() %}{% endmacro %}{{ m.__init__.__globals__ }}",
]
TURNS = [
    "{% for i in range(10**9) %}x{% endfor %}",
    "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "{% for a in range(9999) recursive %}{{ loop(range(9999)) if loop.depth < 9 }}{% endfor %}",
    "{% macro f(n) %}{{ f(n - 1) ~ f(n - 1) if n }}{% endmacro %}{{ f(40) }}",
    "{% for a in range(9) %}{% block b scoped %}{% for c in range(99999) %}{% endfor %}"
    "{% endblock %}{% endfor %}",
]
WIDTHS = [
    "{{ 'a'|center(20000000) }}",
    "{{ 'a'.ljust(20000000) }}",
    "{{ 'a'.zfill(width=20000000) }}",
    "{{ '%020000000d' % 3 }}",
    "{{ '%*d' % (20000000, 3) }}",
    "{{ '%.20000000f' % 3 }}",
    "{{ '%20000000d'|format(3) }}",
    "{{ '%*d'|format(20000000, 3) }}",
    "{{ '{:>20000000}'.format('a') }}",
    "{{ '{:>{}}'.format('a', 20000000) }}",
    "{{ ('%20000000d' | safe) % 3 }}",
    "{{ (5).to_bytes(20000000, 'big') }}",
    "{{ [1]|batch(20000000, 'a')|list }}",
    "{{ [1]|slice(20000000)|list }}",
    "{{ '\t'.expandtabs(20000000) }}",
]


@pytest.mark.parametrize("text", REACHES)
def test_a_template_reaches_no_python_object(text: str) -> None:
    with pytest.raises((SecurityError, UndefinedError)):
        render(text, {"text": "a"})


@pytest.mark.parametrize("text", TURNS)
def test_the_loop_iterations_of_a_template_are_bounded(text: str) -> None:
    with pytest.raises((SecurityError, OverflowError)) as caught:
        render(text, {})
    assert caught.value.meter.turns <= TURNS_MAX + 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("text", WIDTHS)
def test_a_template_cannot_create_an_oversized_text(text: str) -> None:
    with pytest.raises(SecurityError) as caught:
        render(text, {})
    assert caught.value.meter.made <= MADE_MAX + 1  # type: ignore[attr-defined]


def test_honest_templates_are_rendered() -> None:
    text = (
        "{% for d in docs if d.kind == 'a' %}{{ loop.index }}. {{ d.title | center(9) }}|"
        "{{ '%5.2f' % d.score }}|{{ '{:>4}'.format(d.n) }}\n{% endfor %}{{ docs | length }}"
    )
    docs = [{"kind": "a", "title": "t", "score": 0.5, "n": n} for n in range(2)]
    rendered, meter = render(text, {"docs": docs})
    assert rendered == "1.     t    | 0.50|   0\n2.     t    | 0.50|   1\n2"
    assert undeclared(text) == ("", ("docs",))
    assert 0 < meter.turns < 10
