"""The engine ``train.sft``: supervised fine-tuning on the rows' texts."""

from collections.abc import Mapping
from typing import Any

from flowmesh_worker.engine_api import Work
from flowmesh_worker.engines.errors import bad_input
from flowmesh_worker.engines.prompts import chat_of
from flowmesh_worker.engines.train.engine import TrainEngine
from flowmesh_worker.engines.train.examples import Example, Examples, assemble, templates
from flowmesh_worker.engines.train.tokens import IGNORED, TrainingTokenizer


class TrainSft(TrainEngine):
    """The engine ``train.sft``; see :class:`flowmesh_worker.engine_api.Engine`."""

    name = "train.sft"

    def full_logits(self, params: Mapping[str, Any]) -> bool:
        """Whether the loss is not the chunked one."""
        return bool(params["loss_type"] != "chunked_nll")

    def read(self, work: Work, tokenizer: Any, limit: int) -> Examples:
        """See :meth:`TrainEngine.read`; examples have ``input_ids`` and ``labels``."""
        reader = SftReader(work.params, TrainingTokenizer(tokenizer), limit)
        return assemble(work.dataset("rows").rows(), work.params, reader.read)

    def build(self, session: Any) -> Any:
        """Returns TRL's trainer."""
        from datasets import Dataset  # noqa: PLC0415 - heavy
        from trl import SFTConfig, SFTTrainer  # noqa: PLC0415 - heavy

        params, examples = session.params, session.examples
        args = SFTConfig(
            **session.arguments,
            max_length=session.limit,
            packing=params["packing"],
            # Rows are already tokens and labels; only packing remains.
            dataset_kwargs={"skip_prepare_dataset": not params["packing"]},
            loss_type=params["loss_type"],
        )
        return SFTTrainer(
            session.model(),
            args,
            train_dataset=Dataset.from_list(examples.train),
            eval_dataset=Dataset.from_list(examples.test) if examples.test else None,
            processing_class=session.tokenizer,
            peft_config=session.peft_config(),
            callbacks=session.callbacks,
        )


class SftReader:
    """Turns a row into its tokens and labels."""

    def __init__(self, params: Mapping[str, Any], tokens: TrainingTokenizer, limit: int) -> None:
        """Compiles the templates, or names the column of chats.

        Args:
            params: of ``train.sft``.
            tokens: of the model.
            limit: the most tokens of an example.

        Raises:
            AttemptError: bad input; not exactly one kind of text is given.
        """
        self._params = params
        self._tokens = tokens
        self._limit = limit
        given = [n for n in ("text", "completion", "messages") if params.get(n) is not None]
        if params.get("messagesFrom") is not None and "messages" not in given:
            given.append("messages")
        if len(given) != 1:
            raise bad_input(
                "with takes one of text, completion or messages (or messagesFrom)",
                "give exactly one of the three",
            )
        self._what = given[0]
        if params.get("prompt") is not None and self._what != "completion":
            raise bad_input(
                f"with.prompt needs with.completion, and with.{self._what} is given",
                "write the prompt into it, or use completion",
            )
        self._templates = templates(params, "text", "prompt", "completion")
        self._chat = chat_of(params) if self._what == "messages" else None

    def read(self, row: Mapping[str, Any], number: int) -> tuple[Example | None, int, bool]:
        """Returns the example of a row, its tokens, and whether it was cut; see ``assemble``."""
        ids, labels = self._whole(row, number)
        if not ids:
            raise bad_input(f"row {number} renders to an empty text", "write something into it")
        cut = len(ids) > self._limit
        ids, labels = ids[: self._limit], labels[: self._limit]
        # The first token is never predicted.
        if all(label == IGNORED for label in labels[1:]):
            return None, 0, cut
        return {"input_ids": ids, "labels": labels}, len(ids), cut

    def _whole(self, row: Mapping[str, Any], number: int) -> tuple[list[int], list[int]]:
        if self._chat is not None:
            only = bool(self._params["assistant_only_loss"])
            return self._tokens.chat(self._chat.render(row, number).messages, number, only)
        if self._what == "text":
            ids = self._tokens.ended(self._templates["text"].render(row, number))
            return ids, list(ids)
        completion = self._templates["completion"].render(row, number)
        prompt = self._templates.get("prompt")
        before = prompt.render(row, number) if prompt is not None else ""
        ids, start = self._tokens.after(before, completion)
        if self._params["completion_only_loss"] is False:
            start = 0
        return ids, [IGNORED] * start + ids[start:]
