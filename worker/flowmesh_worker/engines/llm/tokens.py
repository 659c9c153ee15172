"""From a rendered request to tokens, with the refusals that belong there."""

import threading
from typing import Any

from flowmesh_worker.engines.llm.prompts import Rendered
from flowmesh_worker.engines.llm.refusal import bad_input


class Tokenizing:
    """A model's tokenizer and chat template; may be called from several threads."""

    def __init__(self, tokenizer: Any, context_length: int) -> None:
        """Takes a Hugging Face tokenizer and the model's context length in tokens."""
        self._tokenizer = tokenizer
        self._context_length = context_length
        # A fast tokenizer raises when two threads use it at once.
        self._lock = threading.Lock()

    def encode(self, rendered: Rendered, number: int) -> list[int]:
        """The prompt's tokens.

        Args:
            rendered: the text or chat.
            number: the row's number in its chunk, from 1, for errors.

        Raises:
            AttemptError: bad input; the prompt is empty or too long, or the model cannot chat.
        """
        with self._lock:
            ids = self._chat(rendered) if rendered.messages else self._text(rendered.text)
        if not ids:
            raise bad_input(
                f"the prompt of row {number} of this chunk is empty", "write something into it"
            )
        if len(ids) >= self._context_length:
            raise bad_input(
                f"the prompt of row {number} of this chunk has {len(ids):,} tokens; the model reads"
                f" {self._context_length:,} with the completion",
                "shorten the row, cut it in a step before, or use a model with a longer context",
            )
        return ids

    def _text(self, text: str) -> list[int]:
        return list(self._tokenizer(text)["input_ids"])

    def _chat(self, rendered: Rendered) -> list[int]:
        if not self._tokenizer.chat_template:
            raise bad_input(
                "this model has no chat template", "use with.prompt, or an instruction-tuned model"
            )
        messages = [{"role": r, "content": c} for r, c in rendered.messages]
        try:
            return list(
                self._tokenizer.apply_chat_template(
                    messages, add_generation_prompt=True, tokenize=True, return_dict=False
                )
            )
        except Exception as e:  # the model's own template decides what it raises
            raise bad_input(
                f"the model's chat template refuses these messages: {e}",
                "mend with.messages (roles, their order)",
            ) from e
