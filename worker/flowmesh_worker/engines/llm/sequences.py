"""Renders the inputs of ``llm.score``: texts to reward, and continuations to score."""

from collections.abc import Mapping, Sequence
from typing import Any

from flowmesh_worker.engines.chat_messages import ASSISTANT, Message
from flowmesh_worker.engines.errors import bad_input
from flowmesh_worker.engines.prompts import Prompt, Rendered, RowTemplate
from flowmesh_worker.engines.tokens import Tokenizing


class RewardText:
    """Renders rows in the form on which reward models are trained.

    ``text`` unchanged; ``prompt`` and ``completion`` together, with the end-of-text token as in
    TRL; or ``messages`` as a complete chat, whose last answer is the ``completion``.
    """

    def __init__(self, params: Mapping[str, Any]) -> None:
        """Compiles the templates.

        Raises:
            AttemptError: bad input; not exactly one of text, prompt and messages is given.
        """
        given = [n for n in ("text", "prompt", "messages") if params.get(n) is not None]
        if params.get("messagesFrom") is not None and "messages" not in given:
            given.append("messages")
        if len(given) != 1:
            raise bad_input(
                "method: reward takes one of text, prompt (with completion) and messages",
                "give exactly one of them",
            )
        self._text = RowTemplate(params["text"], "text") if given == ["text"] else None
        self._prompt = None if self._text else Prompt(params)
        completion = params.get("completion")
        if completion is None and given == ["prompt"]:
            raise bad_input("method: reward needs a completion to the prompt", "give completion")
        self._completion = completion and RowTemplate(completion, "completion")

    def tokens(self, tokenizing: Tokenizing, row: Mapping[str, Any], number: int) -> list[int]:
        """Returns the tokens of one row.

        Raises:
            AttemptError: bad input; names the row.
        """
        if self._text is not None:
            return tokenizing.encode(Rendered(text=self._text.render(row, number)), number)
        assert self._prompt is not None
        rendered = self._prompt.render(row, number)
        end = self._completion.render(row, number) if self._completion else ""
        if not rendered.messages:
            return tokenizing.encode(Rendered(text=rendered.text + end), number, ended=True)
        answer = [Message(ASSISTANT, end)] if self._completion else []
        messages = (*rendered.messages, *answer)
        return tokenizing.encode(Rendered(messages=messages), number, ended=True)


class Continuations:
    """Renders rows as a prompt and its continuations: one completion, or a column's choices."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        """Compiles the templates.

        Raises:
            AttemptError: bad input; not exactly one of completion and choices is given.
        """
        self._prompt = Prompt(params)
        completion, self.choices = params.get("completion"), params.get("choices")
        if (completion is None) == (self.choices is None):
            raise bad_input(
                "method: logprob takes either completion or choices", "give exactly one of the two"
            )
        self._completion = completion and RowTemplate(completion, "completion")

    def of(self, row: Mapping[str, Any], number: int) -> tuple[Rendered, Sequence[str]]:
        """Returns the prompt of a row and the continuations to score, none of them empty.

        Raises:
            AttemptError: bad input; names the row.
        """
        if self._completion:
            texts: Any = [self._completion.render(row, number)]
        else:
            texts = row.get(str(self.choices))
            if not isinstance(texts, list) or not all(isinstance(t, str) for t in texts):
                raise bad_input(
                    f"row {number} of this chunk has no list of texts in {self.choices!r}",
                    "with.choices names a column of lists of strings",
                )
        if "" in texts:
            raise bad_input(
                f"row {number} of this chunk has an empty text to score",
                "a text has at least one character",
            )
        return self._prompt.render(row, number), texts
