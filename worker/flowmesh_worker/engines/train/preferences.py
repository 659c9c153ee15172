"""Turns rows into pairs of answers, for ``train.reward`` and ``train.dpo``."""

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from flowmesh_worker.engines.chat_messages import ASSISTANT, OPENAI, ChatColumn, Message
from flowmesh_worker.engines.errors import bad_input
from flowmesh_worker.engines.prompts import chat_of
from flowmesh_worker.engines.train.examples import templates
from flowmesh_worker.engines.train.tokens import TrainingTokenizer

Pair = tuple[list[int], list[int], list[int]]
"""Tokens of the prompt, of prompt and chosen answer, of prompt and rejected answer."""


class Preferences:
    """Renders and tokenises the pairs of one action."""

    def __init__(self, params: Mapping[str, Any], tokens: TrainingTokenizer) -> None:
        """Compiles ``prompt`` or the chat before the answers, and the answers.

        Raises:
            AttemptError: bad input; both a prompt and a chat are given, or a template is not
                valid.
        """
        self._chat = chat_of(params)
        self._answers = _answer_columns(params)
        if params.get("prompt") is not None and (self._chat or self._answers):
            raise bad_input(
                "with takes either prompt or messages before the answers", "give one of the two"
            )
        self._templates = templates(params, "prompt", "chosen", "rejected")
        self._tokens = tokens

    def pair(self, row: Mapping[str, Any], number: int) -> Pair | None:
        """Returns the tokens of one row; None if both answers are equal.

        Args:
            row: values by column.
            number: the row's number from 1, for errors.

        Raises:
            AttemptError: bad input; names the row.
        """
        if self._answers is not None:
            return self._of_chats(row, number, self._answers)
        answers = [self._templates[n].render(row, number) for n in ("chosen", "rejected")]
        if answers[0] == answers[1]:
            return None
        if self._chat is not None:
            asked = self._chat.render(row, number).messages
            return self._in_chat(asked, [[Message(ASSISTANT, a)] for a in answers], number)
        prompt = self._templates.get("prompt")
        before = prompt.render(row, number) if prompt is not None else ""
        chosen, rejected = (self._tokens.after(before, a)[0] for a in answers)
        return self._tokens.text(before) if before else [], chosen, rejected

    def _of_chats(
        self, row: Mapping[str, Any], number: int, columns: Sequence[ChatColumn]
    ) -> Pair | None:
        chats = [column.read(row, number) for column in columns]
        if chats[0] == chats[1]:
            return None
        if self._chat is not None:
            asked, begin = self._chat.render(row, number).messages, 0
        else:
            pairs = zip(*chats, strict=False)
            begin = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
            asked = chats[0][:begin]
            if not asked:
                raise bad_input(
                    f"row {number}: the two chats begin with no message in common, which would be"
                    " the prompt",
                    "give the prompt with messages or messagesFrom, or leave such rows out",
                )
        answers = [chat[begin:] for chat in chats]
        for column, answer in zip(columns, answers, strict=True):
            if not answer or answer[0].role != ASSISTANT or answer[-1].role != ASSISTANT:
                raise bad_input(
                    f"row {number}: what {column.column!r} has after the prompt is not an answer of"
                    " the assistant",
                    "the chats begin with the same messages, and go on with the assistant's; with"
                    " messages or messagesFrom the columns hold the answers alone",
                )
        return self._in_chat(asked, answers, number)

    def _in_chat(
        self, asked: Sequence[Message], answers: Sequence[Sequence[Message]], number: int
    ) -> Pair:
        chosen, rejected = (
            self._tokens.chat((*asked, *answer), number, False)[0] for answer in answers
        )
        return self._tokens.asked(asked, number) if asked else [], chosen, rejected


def _answer_columns(params: Mapping[str, Any]) -> tuple[ChatColumn, ChatColumn] | None:
    """Returns the columns of the better and the worse chat; None where answers are templates."""
    names = ("chosenFrom", "rejectedFrom")
    given = [params.get(name) for name in names]
    if given == [None, None]:
        return None
    if None in given:
        raise bad_input("with.chosenFrom and with.rejectedFrom go together", "give both")
    form = str(params.get("messagesFormat") or OPENAI)
    first, second = (ChatColumn(str(c), form, n) for c, n in zip(given, names, strict=True))
    return first, second
