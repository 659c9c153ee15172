"""Turns rendered prompts into tokens, and refuses those that the model cannot read."""

import threading
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from flowmesh_core.errors import AttemptError
from flowmesh_worker.engines.chat_style import PLAIN, ChatStyle
from flowmesh_worker.engines.errors import bad_input
from flowmesh_worker.engines.prompts import Rendered

Messages = Sequence[Mapping[str, Any]]
_CALL_ID, _ARGUMENT, _RESULT = "call00001", "an-argument", "a-result"


class Tokenizing:
    """A model's tokenizer and chat template; thread-safe."""

    def __init__(self, tokenizer: Any, context_length: int) -> None:
        """Wraps a Hugging Face tokenizer.

        Args:
            tokenizer: of the model.
            context_length: the model's, in tokens.
        """
        self._tokenizer = tokenizer
        self.context_length = context_length
        # A fast tokenizer raises when two threads use it at the same time.
        self._lock = threading.Lock()

    def encode(
        self, rendered: Rendered, number: int, *, ended: bool = False, style: ChatStyle = PLAIN
    ) -> list[int]:
        """Returns the prompt's tokens.

        Args:
            rendered: the text or chat.
            number: the row's number in its chunk, from 1, for errors.
            ended: whether the text is complete and the model is not to continue it.
            style: how a chat is written that the model is to continue.

        Raises:
            AttemptError: bad input; the prompt is empty or too long, or the model cannot chat.
        """
        text = None
        if rendered.messages and style.is_own:
            tokens = self._tokenizer.special_tokens_map
            text = style.render([m.for_template() for m in rendered.messages], tokens, number)
        with self._lock:
            if text is not None:
                ids = list(self._tokenizer(text, add_special_tokens=False)["input_ids"])
            elif rendered.messages:
                ids = self._chat(rendered, ended, style)
            else:
                ids = self._text(rendered.text)
            end = self._tokenizer.eos_token_id
            if ended and not rendered.messages and end is not None and ids[-1:] != [end]:
                ids.append(end)
        self.require_fits_context(ids, number)
        return ids

    def require_fits_context(self, ids: Sequence[int], number: int) -> None:
        """Refuses a prompt that is empty, or that leaves no token of the context for a completion.

        Args:
            ids: its tokens.
            number: the row's number in its chunk, from 1, for errors.

        Raises:
            AttemptError: bad input; the prompt is empty or too long.
        """
        if not ids:
            raise bad_input(
                f"the prompt of row {number} of this chunk is empty", "write something into it"
            )
        if len(ids) >= self.context_length:
            raise bad_input(
                f"the prompt of row {number} of this chunk has {len(ids):,} tokens; the model reads"
                f" {self.context_length:,} with the completion",
                "shorten the row, cut it in a step before, or use a model with a longer context",
            )

    def require_min_tokens_fit(self, ids: Sequence[int], min_tokens: int, number: int) -> None:
        """Refuses a prompt that leaves less room than a completion has at least.

        Args:
            ids: its tokens.
            min_tokens: of the completion.
            number: the row's number in its chunk, from 1, for errors.

        Raises:
            AttemptError: bad input; the model does not read so many tokens.
        """
        if len(ids) + min_tokens > self.context_length:
            raise bad_input(
                f"the prompt of row {number} of this chunk has {len(ids):,} tokens, and with"
                f" minTokens: {min_tokens:,} more than the {self.context_length:,} that the model"
                " reads",
                "shorten the row, or lower minTokens",
            )

    def last_text(self, ids: Sequence[int], count: int) -> str:
        """Returns the text of the last tokens of a prompt, special ones included."""
        with self._lock:
            return str(self._tokenizer.decode(list(ids[-count:])))

    def chat(self, messages: Messages, tools: Messages = ()) -> list[int]:
        """Returns the tokens of a chat that the model is to continue; their number is not checked.

        Args:
            messages: in the form of the model's chat template.
            tools: descriptions of functions, if the template supports tools.

        Raises:
            AttemptError: bad input; the model has no chat template, or it refuses the messages.
        """
        with self._lock:
            return list(self._apply(messages, tools, ended=False, tokenize=True))

    def supports_tools(self, tools: Messages) -> bool:
        """Whether the model's chat template renders descriptions, calls and results of tools."""
        name = str(tools[0]["function"]["name"])
        function = {"name": name, "arguments": {"x": _ARGUMENT}}
        call = {"id": _CALL_ID, "type": "function", "function": function}
        question = {"role": "user", "content": "?"}
        answered: list[dict[str, Any]] = [
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": _CALL_ID, "name": name, "content": _RESULT},
        ]
        try:
            with self._lock:
                described = self._apply([question], tools, ended=False, tokenize=False)
                shown = self._apply([question, *answered], (), ended=False, tokenize=False)
        except AttemptError:
            return False
        return name in described and _ARGUMENT in shown and _RESULT in shown

    def continuation(
        self, rendered: Rendered, text: str, number: int
    ) -> tuple[list[int], list[int]]:
        """Returns the tokens of a prompt and of a text that follows it.

        Prompt and text are tokenized together, so that a word across their boundary is one token,
        which belongs to the text; so do spaces at the end of the prompt.

        Args:
            rendered: the prompt, or the chat before an answer.
            text: not empty.
            number: the row's number in its chunk, from 1, for errors.

        Returns:
            At least one token each; an empty prompt is the model's first or end-of-text token.

        Raises:
            AttemptError: bad input; they are too long, or the model cannot chat.
        """
        with self._lock:
            if rendered.messages:
                prompt = self._chat(rendered, ended=False, style=PLAIN)
                target = list(self._tokenizer(text, add_special_tokens=False)["input_ids"])
            else:
                alone, whole = self._text(rendered.text), self._text(rendered.text + text)
                pairs = zip(alone, whole, strict=False)
                same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
                prompt, target = whole[:same], whole[same:]
            first = self._tokenizer.bos_token_id
            start = self._tokenizer.eos_token_id if first is None else first
        if not prompt and start is not None:
            prompt = [start]
        if not prompt or not target:
            raise bad_input(
                f"row {number} of this chunk has no tokens to score, or none before them",
                "write something into the prompt and the text",
            )
        if len(prompt) + len(target) > self.context_length:
            raise bad_input(
                f"row {number} of this chunk has {len(prompt) + len(target):,} tokens; the model"
                f" reads {self.context_length:,}",
                "shorten the row, or use a model with a longer context",
            )
        return prompt, target

    def _text(self, text: str) -> list[int]:
        return list(self._tokenizer(text)["input_ids"])

    def _chat(self, rendered: Rendered, ended: bool, style: ChatStyle) -> list[int]:
        messages = [m.for_template() for m in rendered.messages]
        return list(self._apply(messages, (), ended=ended, tokenize=True, style=style))

    def _apply(
        self,
        messages: Messages,
        tools: Messages,
        *,
        ended: bool,
        tokenize: bool,
        style: ChatStyle = PLAIN,
    ) -> Any:
        """Applies the model's chat template; the caller has the lock."""
        if not self._tokenizer.chat_template:
            raise bad_input(
                "this model has no chat template", "use with.prompt, or an instruction-tuned model"
            )
        try:
            return self._tokenizer.apply_chat_template(
                [dict(m) for m in messages],
                tools=[dict(t) for t in tools] or None,
                add_generation_prompt=not ended,
                tokenize=tokenize,
                return_dict=False,
                **style.args,
            )
        except Exception as e:  # the model's own template decides what it raises
            raise bad_input(
                f"the model's chat template refuses these messages: {e}",
                "correct with.messages (roles, their order)",
            ) from e
