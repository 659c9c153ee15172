"""Renders rows into prompts: templates over the row's columns.

Called by the engines for every row of an action. A template that names a missing field, or whose
text is longer than any model could read, fails that action only, with the row's number.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jinja2 import Template, TemplateError, UndefinedError

from flowmesh_core.catalog.template_text import NullInTemplateError
from flowmesh_core.catalog.templates import context, environment
from flowmesh_core.identity.canonical import canonical_bytes
from flowmesh_worker.engines.errors import bad_input

MAX_CHARS = 2_000_000
"""The most characters that the templates of one row may render to."""
_SHORT = 80


@dataclass(frozen=True, slots=True)
class Rendered:
    """One row's prompt: a text to continue, or the messages of a chat as (role, content)."""

    text: str = ""
    messages: tuple[tuple[str, str], ...] = ()

    def canonical(self) -> bytes:
        """Returns the bytes from which a sample's seed is derived."""
        return canonical_bytes([list(m) for m in self.messages] if self.messages else self.text)


class RowTemplate:
    """A template, compiled once for all rows of an action."""

    def __init__(self, source: str, where: str) -> None:
        """Compiles the source.

        Args:
            source: the Jinja source.
            where: the parameter that contains it, for errors.

        Raises:
            AttemptError: bad input; the source is not a valid template.
        """
        self._where = where
        try:
            self._template: Template = environment().from_string(source)
        except TemplateError as e:
            raise bad_input(
                f"with.{where} is not a valid template: {e}", "correct the template"
            ) from e
        except (SyntaxError, RecursionError, MemoryError) as e:  # of the Python that it becomes
            raise bad_input(
                f"with.{where} is nested too deeply", "split the template, or write it flatter"
            ) from e

    def render(self, row: Mapping[str, Any], number: int) -> str:
        """Renders one row.

        Args:
            row: values by column.
            number: the row's number in this chunk, from 1, for errors.

        Raises:
            AttemptError: bad input; names the row, the field and the existing columns.
        """
        size, parts = 0, []
        try:
            for part in self._template.generate(context(dict(row))):
                size += len(part)
                if size > MAX_CHARS:
                    raise bad_input(
                        f"with.{self._where} renders to more than {MAX_CHARS:,} characters for row"
                        f" {number} of this chunk",
                        "shorten the column's values or the template",
                    )
                parts.append(part)
        except UndefinedError as e:
            raise bad_input(
                f"with.{self._where}: row {number} of this chunk: {e.message}",
                f"the columns are {', '.join(sorted(row)) or '(none)'}",
            ) from e
        except NullInTemplateError as e:
            raise bad_input(
                f"with.{self._where}: row {number} of this chunk: a null would be printed",
                "write a default, such as {{ name or '' }}, or leave such rows out",
            ) from e
        except RecursionError as e:
            raise bad_input(
                f"with.{self._where} fails for row {number} of this chunk:"
                " it calls itself without end",
                "give the macro or the recursive loop an end",
            ) from e
        except (TemplateError, ArithmeticError, TypeError, ValueError, LookupError) as e:
            raise bad_input(
                f"with.{self._where} fails for row {number} of this chunk:"
                f" {type(e).__name__}: {str(e)[:_SHORT]}",
                "correct the template or the row",
            ) from e
        return "".join(parts)


class Prompt:
    """The prompt or the messages of ``llm.generate``."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        """Compiles ``prompt``, or ``system`` and ``messages``.

        Raises:
            AttemptError: bad input; neither or both are given, or a template is not valid.
        """
        prompt, messages = params.get("prompt"), params.get("messages")
        system = params.get("system")
        if (prompt is None) == (messages is None):
            raise bad_input("with takes either prompt or messages", "give exactly one of the two")
        if prompt is not None and system is not None:
            raise bad_input(
                "with.system needs with.messages", "use messages, or write it into the prompt"
            )
        self._text = RowTemplate(prompt, "prompt") if prompt is not None else None
        self._messages = [] if messages is None else _message_templates(messages, system)

    def render(self, row: Mapping[str, Any], number: int) -> Rendered:
        """Returns the row's prompt; see :meth:`RowTemplate.render`."""
        if self._text is not None:
            return Rendered(text=self._text.render(row, number))
        return Rendered(messages=tuple((r, t.render(row, number)) for r, t in self._messages))


def _message_templates(messages: Any, system: str | None) -> list[tuple[str, RowTemplate]]:
    if not isinstance(messages, list | tuple) or not messages:
        raise bad_input(
            "with.messages is not a list of messages", "write [{role: user, content: ...}]"
        )
    out = [] if system is None else [("system", RowTemplate(system, "system"))]
    for i, message in enumerate(messages):
        role = message.get("role") if isinstance(message, Mapping) else None
        content = message.get("content") if isinstance(message, Mapping) else None
        if not isinstance(role, str) or not isinstance(content, str) or len(message) != 2:  # noqa: PLR2004 - a message has two members
            raise bad_input(
                f"with.messages[{i}] is not a message",
                "a message is {role: system | user | assistant, content: text}",
            )
        out.append((role, RowTemplate(content, f"messages[{i}].content")))
    return out
