"""Turns rows into pairs of answers, for ``train.reward`` and ``train.dpo``."""

from collections.abc import Mapping
from typing import Any

from flowmesh_worker.engines.errors import bad_input
from flowmesh_worker.engines.prompts import Prompt
from flowmesh_worker.engines.train.examples import templates
from flowmesh_worker.engines.train.tokens import TrainingTokenizer

Pair = tuple[list[int], list[int], list[int]]
"""Tokens of the prompt, of prompt and chosen answer, of prompt and rejected answer."""


class Preferences:
    """Renders and tokenises the pairs of one action."""

    def __init__(self, params: Mapping[str, Any], tokens: TrainingTokenizer) -> None:
        """Compiles ``prompt`` or ``messages``, ``chosen`` and ``rejected``.

        Raises:
            AttemptError: bad input; both a prompt and messages are given, or a template is not
                valid.
        """
        if params.get("prompt") is not None and params.get("messages") is not None:
            raise bad_input(
                "with takes either prompt or messages before the answers", "give one of the two"
            )
        self._templates = templates(params, "prompt", "chosen", "rejected")
        chat = params.get("messages")
        self._chat = Prompt({"messages": chat}) if chat is not None else None
        self._tokens = tokens

    def pair(self, row: Mapping[str, Any], number: int) -> Pair | None:
        """Returns the tokens of one row; None if both answers are equal.

        Args:
            row: values by column.
            number: the row's number from 1, for errors.

        Raises:
            AttemptError: bad input; names the row.
        """
        answers = [self._templates[n].render(row, number) for n in ("chosen", "rejected")]
        if answers[0] == answers[1]:
            return None
        if self._chat is not None:
            return self._in_chat(row, number, answers)
        prompt = self._templates.get("prompt")
        before = prompt.render(row, number) if prompt is not None else ""
        chosen, rejected = (self._tokens.after(before, a)[0] for a in answers)
        return self._tokens.text(before) if before else [], chosen, rejected

    def _in_chat(self, row: Mapping[str, Any], number: int, answers: list[str]) -> Pair:
        assert self._chat is not None
        messages = self._chat.render(row, number).messages
        chosen, rejected = (
            self._tokens.chat((*messages, ("assistant", a)), number, False)[0] for a in answers
        )
        return self._tokens.asked(messages, number), chosen, rejected
