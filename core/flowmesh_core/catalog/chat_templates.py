"""Chat templates that users write: the environment of Hugging Face's, under our limits.

The compiler parses them, engine hosts render them. They have the options, filters and functions
that published chat templates expect, so that a model's own template may be given as a text and
renders the same, but no clock (``strftime_now``): equal chats have equal prompts.
"""

import json
from functools import cache
from typing import Any

from jinja2 import pass_context
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from flowmesh_core.catalog.template_meter import refuse_large
from flowmesh_core.catalog.template_text import INDENT_MAX
from flowmesh_core.catalog.templates import limited_environment, names_read

MESSAGES, TOOLS, GENERATION = "messages", "tools", "add_generation_prompt"
_OWN = frozenset(
    {
        *(MESSAGES, TOOLS, GENERATION, "documents", "conversation", "chat_template"),
        *("continue_final_message", "tokenize", "return_dict", "return_tensors", "padding"),
        *("truncation", "max_length", "return_assistant_tokens_mask", "tokenizer_kwargs"),
        *("sanitize_control_tokens", "bos_token", "eos_token", "pad_token", "unk_token"),
    }
)
"""Names that a chat template, or the function that renders it, has already."""
_CLOCK = "strftime_now"


@cache
def chat_environment() -> ImmutableSandboxedEnvironment:
    """Returns the sandboxed environment of chat templates; made once, never changed."""
    env = limited_environment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    env.filters["tojson"] = _tojson
    env.globals["raise_exception"] = _raise
    return env


def template_problem(text: str) -> str:
    """Returns what is wrong with a chat template, or an empty string; nothing is rendered."""
    problem, names = names_read(text, chat_environment())
    if not problem and _CLOCK in names:
        return f"{_CLOCK} reads a clock, and equal chats must have equal prompts; write the date"
    return problem


def argument_problem(name: Any) -> str:
    """Returns what is wrong with the name of one of ``chatTemplateArgs``, or an empty string."""
    if not isinstance(name, str) or not name.isidentifier():
        return "expected a name that a template can read"
    return f"{name} is set already" if name in _OWN else ""


@pass_context
def _tojson(
    context: Any,
    value: Any,
    ensure_ascii: bool = False,
    indent: Any = None,
    separators: Any = None,
    sort_keys: bool = False,
) -> str:
    size = len(indent) if isinstance(indent, str) else indent
    if size is not None and size > INDENT_MAX:
        raise SecurityError(f"an indent of {size}, of at most {INDENT_MAX}")
    refuse_large(context.meter.size(value))
    text = json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=None if separators is None else tuple(separators),
        sort_keys=sort_keys,
    )
    return str(context.meter.makes(text))


def _raise(message: str) -> str:
    raise TemplateError(message)
