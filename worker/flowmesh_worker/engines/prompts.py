"""Renders rows into prompts: templates over the row's columns.

Called by the engines for every row of an action. A template that names a missing field, or whose
text is longer than any model could read, fails that action only, with the row's number.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from jinja2 import Environment, Template, TemplateError, UndefinedError

from flowmesh_core.catalog.template_text import NullInTemplateError
from flowmesh_core.catalog.templates import context, environment
from flowmesh_core.identity.canonical import canonical_bytes
from flowmesh_worker.engines.chat_messages import (
    OPENAI,
    SYSTEM,
    ChatColumn,
    Message,
    own_system,
)
from flowmesh_worker.engines.errors import bad_input

MAX_CHARS = 2_000_000
"""The most characters that the templates of one row may render to."""
_SHORT = 80


@dataclass(frozen=True, slots=True)
class Rendered:
    """One row's prompt: a text to continue, or the messages of a chat.

    Attributes:
        text: to continue; empty for a chat.
        messages: of a chat.
        begins_at: how many messages the step's ``system`` has added before the chat.
    """

    text: str = ""
    messages: tuple[Message, ...] = ()
    begins_at: int = 0

    def canonical(self) -> bytes:
        """Returns the bytes from which a sample's seed is derived."""
        if not self.messages:
            return canonical_bytes(self.text)
        return canonical_bytes([m.canonical() for m in self.messages])


class LimitedTemplate:
    """A user's template, compiled once, and rendered under the limits of its environment."""

    def __init__(self, source: str, where: str, env: Environment) -> None:
        """Compiles the source.

        Args:
            source: the Jinja source.
            where: the parameter that contains it, for errors.
            env: the environment.

        Raises:
            AttemptError: bad input; the source is not a valid template.
        """
        self._where = where
        try:
            self._template: Template = env.from_string(source)
        except TemplateError as e:
            raise bad_input(
                f"with.{where} is not a valid template: {e}", "correct the template"
            ) from e
        except (SyntaxError, RecursionError, MemoryError) as e:  # of the Python that it becomes
            raise bad_input(
                f"with.{where} is nested too deeply", "split the template, or write it flatter"
            ) from e

    def render_names(self, names: Mapping[str, Any], number: int, remedy: Callable[[], str]) -> str:
        """Renders the template with the names that it sees.

        Args:
            names: values by name.
            number: the row's number in this chunk, from 1, for errors.
            remedy: returns what to do about a name that is not defined.

        Raises:
            AttemptError: bad input; names the row and what is wrong.
        """
        size, parts = 0, []
        try:
            for part in self._template.generate(dict(names)):
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
                f"with.{self._where}: row {number} of this chunk: {e.message}", remedy()
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


class RowTemplate(LimitedTemplate):
    """A template over the columns of rows, compiled once for all rows of an action."""

    def __init__(self, source: str, where: str) -> None:
        """Compiles the source; see :class:`LimitedTemplate`."""
        super().__init__(source, where, environment())

    def render(self, row: Mapping[str, Any], number: int) -> str:
        """Renders one row.

        Args:
            row: values by column.
            number: the row's number in this chunk, from 1, for errors.

        Raises:
            AttemptError: bad input; names the row, the field and the existing columns.
        """
        return self.render_names(
            context(dict(row)),
            number,
            lambda: f"the columns are {', '.join(sorted(row)) or '(none)'}",
        )


class Prompt:
    """The prompt or the chat of ``llm.generate``: templates, a column of chats, or both."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        """Compiles ``prompt``, or ``system``, ``messagesFrom`` and ``messages``.

        Raises:
            AttemptError: bad input; neither or both are given, or a template is not valid.
        """
        prompt, messages = params.get("prompt"), params.get("messages")
        system, column = params.get("system"), params.get("messagesFrom")
        if (prompt is None) == (messages is None and column is None):
            raise bad_input(
                "with takes either prompt or messages (or messagesFrom)",
                "give exactly one of the two",
            )
        if prompt is not None and system is not None:
            raise bad_input(
                "with.system needs with.messages", "use messages, or write it into the prompt"
            )
        self._text = RowTemplate(prompt, "prompt") if prompt is not None else None
        self._system = None if system is None else RowTemplate(system, "system")
        self._column = None
        if column is not None:
            self._column = ChatColumn(str(column), str(params.get("messagesFormat") or OPENAI))
        self._messages = [] if messages is None else _message_templates(messages)

    def render(self, row: Mapping[str, Any], number: int) -> Rendered:
        """Returns the row's prompt; see :meth:`RowTemplate.render`."""
        if self._text is not None:
            return Rendered(text=self._text.render(row, number))
        own = () if self._column is None else self._column.read(row, number)
        first: tuple[Message, ...] = ()
        if self._system is not None:
            if any(m.role == SYSTEM for m in own):
                raise own_system(number)
            first = (Message(SYSTEM, self._system.render(row, number)),)
        written = (Message(role, t.render(row, number)) for role, t in self._messages)
        return Rendered(messages=(*first, *own, *written), begins_at=len(first))


def chat_of(params: Mapping[str, Any]) -> Prompt | None:
    """Returns the chat of an engine that has no ``system``; None where it has no messages.

    Raises:
        AttemptError: bad input; a template is not valid.
    """
    given = {n: params.get(n) for n in ("messages", "messagesFrom", "messagesFormat")}
    has_chat = given["messages"] is not None or given["messagesFrom"] is not None
    return Prompt(given) if has_chat else None


def _message_templates(messages: Any) -> list[tuple[str, RowTemplate]]:
    if not isinstance(messages, list | tuple) or not messages:
        raise bad_input(
            "with.messages is not a list of messages", "write [{role: user, content: ...}]"
        )
    out = []
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
