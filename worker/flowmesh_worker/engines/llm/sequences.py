"""What ``llm.score`` feeds a model for a row: texts to reward, completions to weigh."""

from collections.abc import Mapping, Sequence
from typing import Any

from flowmesh_worker.engines.errors import bad_input
from flowmesh_worker.engines.prompts import Prompt, Rendered, RowTemplate
from flowmesh_worker.engines.tokens import Tokenizing


class RewardText:
    """Renders rows as a reward model was trained on them.

    ``text`` as it is; ``prompt`` and ``completion`` together, ended by the end-of-text token as TRL
    does; or ``messages`` as a finished chat, to which a ``completion`` is the last answer.
    """

    def __init__(self, params: Mapping[str, Any]) -> None:
        """Compiles the templates.

        Raises:
            AttemptError: bad input; not exactly one of text, prompt and messages is given.
        """
        given = [n for n in ("text", "prompt", "messages") if params.get(n) is not None]
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
        """The sequence of one row.

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
        messages = (*rendered.messages, *([("assistant", end)] if self._completion else []))
        return tokenizing.encode(Rendered(messages=messages), number, ended=True)


class Continuations:
    """Renders rows as a prompt and what may follow it: one completion, or a column's choices."""

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
        """The prompt of a row and the texts to weigh, each of them not empty.

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
                f"row {number} of this chunk has an empty text to weigh",
                "a text has at least one character",
            )
        return self._prompt.render(row, number), texts
