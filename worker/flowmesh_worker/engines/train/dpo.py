"""The engine ``train.dpo``: direct preference optimization on pairs of answers."""

from collections.abc import Mapping
from typing import Any

from flowmesh_worker.engine_api import Work
from flowmesh_worker.engines.errors import bad_input
from flowmesh_worker.engines.train.engine import TrainEngine
from flowmesh_worker.engines.train.examples import Example, Examples, assemble
from flowmesh_worker.engines.train.preferences import Preferences
from flowmesh_worker.engines.train.tokens import TrainingTokenizer


class TrainDpo(TrainEngine):
    """The engine ``train.dpo``; see :class:`flowmesh_worker.engine_api.Engine`."""

    name = "train.dpo"
    sequences = 2
    references = 1

    def read(self, work: Work, tokenizer: Any, limit: int) -> Examples:
        """See :meth:`TrainEngine.read`; examples have a prompt and two answers, as ids."""
        if work.params["loss_type"] == "exo_pair" and not work.params["label_smoothing"]:
            raise bad_input(
                "with.loss_type: exo_pair needs with.label_smoothing above 0",
                "set label_smoothing: 0.001",
            )
        preferences = Preferences(work.params, TrainingTokenizer(tokenizer))

        def read(row: Mapping[str, Any], number: int) -> tuple[Example | None, int, bool]:
            pair = preferences.pair(row, number)
            if pair is None:
                return None, 0, False
            prompt, *answers = pair
            longest = max(map(len, answers))
            if len(prompt) >= limit:
                return None, 0, True
            chosen, rejected = (a[len(prompt) :] for a in answers)
            example = {"prompt_ids": prompt, "chosen_ids": chosen, "rejected_ids": rejected}
            return example, min(longest, limit), longest > limit

        return assemble(work.dataset("rows").rows(), work.params, read)

    def build(self, session: Any) -> Any:
        """Returns TRL's trainer, which uses the tokenized rows unchanged."""
        from datasets import Dataset  # noqa: PLC0415 - heavy
        from trl import DPOConfig, DPOTrainer  # noqa: PLC0415 - heavy

        class Trainer(DPOTrainer):  # type: ignore[misc]  # no types there
            def _prepare_dataset(self, dataset: Any, *_: Any) -> Any:
                return dataset  # already tokenized; TRL has no option for that

        params, examples = session.params, session.examples
        args = DPOConfig(
            **session.arguments,
            max_length=session.limit,
            beta=params["beta"],
            loss_type=params["loss_type"],
            label_smoothing=params["label_smoothing"],
        )
        return Trainer(
            session.model(),
            session.reference(),
            args,
            train_dataset=Dataset.from_list(examples.train),
            eval_dataset=Dataset.from_list(examples.test) if examples.test else None,
            processing_class=session.tokenizer,
            peft_config=session.peft_config(),
            callbacks=session.callbacks,
        )
