"""Chat templates of users: what published ones need, and what admission refuses."""

import pytest
from jinja2.exceptions import SecurityError, TemplateError

from flowmesh_core.catalog.chat_templates import (
    argument_problem,
    chat_environment,
    template_problem,
)

CHATML = """{%- if messages[0]['role'] == 'system' -%}
    {%- set system = messages[0].content %}
    {%- set messages = messages[1:] %}
{%- endif %}
{%- for m in messages %}
    {%- if loop.index > 9 %}{% break %}{% endif %}
<|{{ m.role }}|>{{ m['content'] | trim }}
{% endfor %}
{%- if tools is not none and tools %}{{ tools | tojson(indent=2) }}{% endif %}
{%- if add_generation_prompt %}<|assistant|>{% if enable_thinking is defined and not enable_thinking
 %}<think></think>{% endif %}{% endif %}
"""
SEEN = {
    "messages": [{"role": "system", "content": "x"}, {"role": "user", "content": " hi "}],
    "tools": None,
    "add_generation_prompt": True,
}


def rendered(text: str, **names: object) -> str:
    return chat_environment().from_string(text).render(**{**SEEN, **names})


def test_a_template_as_they_are_published_renders() -> None:
    assert template_problem(CHATML) == ""
    assert rendered(CHATML) == "<|user|>hi\n<|assistant|>"
    assert rendered(CHATML, enable_thinking=False).endswith("<think></think>")
    assert '"a": [\n' in rendered(CHATML, tools=[{"a": [1]}])
    assert rendered("{{ {'b': '<', 'a': 'é'} | tojson }}") == '{"b": "<", "a": "é"}'


def test_a_template_may_refuse_its_messages() -> None:
    with pytest.raises(TemplateError, match="roles must alternate"):
        rendered("{{ raise_exception('roles must alternate') }}")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{% for m in messages %}", "not a template: Unexpected end of template"),
        ("{{ m | shout }}", "No filter named 'shout'"),
        ("{% for a in b %}" * 21 + "{% endfor %}" * 21, "nested too deeply"),
        ("{{ strftime_now('%Y') }}", "strftime_now reads a clock"),
        ("{% include 'x' %}{{ lipsum() | random }}", "No filter named 'random'"),
    ],
)
def test_admission_refuses_a_template_that_cannot_work(text: str, said: str) -> None:
    assert said in template_problem(text)


@pytest.mark.parametrize(
    "text",
    [
        "{% for i in range(90000) %}{% for j in range(9) %}x{% endfor %}{% endfor %}",
        "{{ 'x' * 10000000 }}",
        "{{ [[['x'] * 999] * 999] * 999 }}",
        "{{ messages | tojson(indent=100000) }}",
        "{{ messages.__class__.__mro__ }}",
    ],
)
def test_a_rendering_has_the_limits_of_other_templates_of_users(text: str) -> None:
    with pytest.raises((SecurityError, TemplateError)):
        rendered(text)


def test_arguments_never_replace_what_a_template_is_given() -> None:
    assert argument_problem("enable_thinking") == ""
    assert argument_problem("messages") == "messages is set already"
    assert argument_problem("tokenize") == "tokenize is set already"
    assert argument_problem("a b") == "expected a name that a template can read"
