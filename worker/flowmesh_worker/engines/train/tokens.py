"""Tokenizes texts for training in the same way as TRL."""

from collections.abc import Mapping, Sequence
from typing import Any

from flowmesh_worker.engines.chat_messages import Message
from flowmesh_worker.engines.errors import bad_input

IGNORED = -100
"""The label of a token that is input only, without a loss."""
_GENERATION = "{% generation %}"


class TrainingTokenizer:
    """A model's tokenizer and chat template. Not thread-safe."""

    def __init__(self, tokenizer: Any) -> None:
        """Checks that the tokenizer has an end token.

        Raises:
            AttemptError: bad input; it has no token that ends a text.
        """
        if not tokenizer.eos_token:
            raise bad_input(
                "the model's tokenizer has no end token, so that it cannot learn to stop",
                "set eos_token in its tokenizer_config.json",
            )
        self._tokenizer = tokenizer

    def text(self, text: str) -> list[int]:
        """Returns the tokens of a text, with those that the tokenizer adds at its beginning."""
        return list(self._tokenizer(text)["input_ids"])

    def ended(self, text: str) -> list[int]:
        """Returns the tokens of a text and the end token."""
        return self.text(self._with_end(text))

    def after(self, prompt: str, completion: str) -> tuple[list[int], int]:
        """Returns the tokens of both and the end token, and how many of them are the prompt's."""
        ids = self.text(prompt + self._with_end(completion))
        return ids, len(self.text(prompt)) if prompt else 0

    def chat(
        self, messages: Sequence[Message], number: int, assistant_only: bool
    ) -> tuple[list[int], list[int]]:
        """Returns the tokens of a chat and their labels.

        Args:
            messages: of the chat.
            number: the row's number from 1, for errors.
            assistant_only: whether only the assistant's tokens are learned.

        Raises:
            AttemptError: bad input; the model has no chat template, or it refuses the messages.
        """
        encoded = self._in_template(
            messages,
            number,
            chat_template=self._template(assistant_only),
            return_assistant_tokens_mask=assistant_only,
        )
        ids = list(encoded["input_ids"])
        if not assistant_only:
            return ids, list(ids)
        learned = encoded["assistant_masks"]
        return ids, [i if m else IGNORED for i, m in zip(ids, learned, strict=True)]

    def asked(self, messages: Sequence[Message], number: int) -> list[int]:
        """Returns the tokens of a chat up to the assistant's answer; see :meth:`chat`."""
        self._template(assistant_only=False)
        encoded = self._in_template(messages, number, add_generation_prompt=True)
        return list(encoded["input_ids"])

    def _in_template(
        self, messages: Sequence[Message], number: int, **options: Any
    ) -> Mapping[str, Any]:
        chat = [m.for_template() for m in messages]
        try:
            encoded: Mapping[str, Any] = self._tokenizer.apply_chat_template(
                chat, return_dict=True, **options
            )
        except Exception as e:  # the model's own template decides what it raises
            raise bad_input(
                f"row {number}: the model's chat template refuses these messages: {e}",
                "correct with.messages (roles, their order)",
            ) from e
        return encoded

    def _template(self, assistant_only: bool) -> str | None:
        template = self._tokenizer.chat_template
        if not template:
            raise bad_input(
                "this model has no chat template",
                "use text or completion, or an instruction-tuned model",
            )
        if not assistant_only or _GENERATION in template:
            return None
        from trl.chat_template_utils import (  # noqa: PLC0415 - heavy
            get_training_chat_template,
        )

        try:
            return str(get_training_chat_template(self._tokenizer))
        except ValueError as e:
            raise bad_input(
                "with.assistant_only_loss: the model's chat template does not mark the"
                " assistant's words, and TRL has no variant of it that does",
                "remove assistant_only_loss, or use prompt and completion",
            ) from e

    def _with_end(self, text: str) -> str:
        end = str(self._tokenizer.eos_token)
        return text if text.endswith(end) else text + end
