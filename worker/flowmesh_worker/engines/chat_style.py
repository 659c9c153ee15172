"""How a step writes its chats: a chat template of its own, and values that a template sees."""

from collections.abc import Mapping, Sequence
from typing import Any

from flowmesh_core.catalog.chat_templates import GENERATION, MESSAGES, TOOLS, chat_environment
from flowmesh_worker.engines.prompts import LimitedTemplate

_PARAMETER = "chatTemplate"
_REMEDY = "a chat template sees messages, tools, special tokens and with.chatTemplateArgs"


class ChatStyle:
    """The parameters ``chatTemplate`` and ``chatTemplateArgs`` of a step.

    Attributes:
        args: values that the chat template sees by name.
    """

    def __init__(self, params: Mapping[str, Any]) -> None:
        """Compiles the template, if there is one.

        Raises:
            AttemptError: bad input; it is not a valid template.
        """
        source = params.get(_PARAMETER)
        self.args: Mapping[str, Any] = params.get("chatTemplateArgs") or {}
        self._template = (
            None if source is None else LimitedTemplate(source, _PARAMETER, chat_environment())
        )

    @property
    def is_own(self) -> bool:
        """Whether the step brings a template of its own."""
        return self._template is not None

    def render(
        self, messages: Sequence[Mapping[str, Any]], special_tokens: Mapping[str, Any], number: int
    ) -> str:
        """Returns a chat that the model is to continue, written by the step's own template.

        Args:
            messages: in the form of chat templates.
            special_tokens: of the tokenizer, by name.
            number: the row's number in its chunk, from 1, for errors.

        Raises:
            AttemptError: bad input; the template refuses the messages, or passes a limit.
        """
        assert self._template is not None
        names = {
            **special_tokens,
            **self.args,
            MESSAGES: [dict(m) for m in messages],
            TOOLS: None,
            "documents": None,
            GENERATION: True,
        }
        return self._template.render_names(names, number, lambda: _REMEDY)


PLAIN = ChatStyle({})
"""The model's own template, without further values."""
