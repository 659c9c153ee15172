"""The engine ``train.reward``: a reward model from pairs of answers."""

from collections.abc import Mapping
from typing import Any

from flowmesh_worker.engine_api import Work
from flowmesh_worker.engines.train.engine import TrainEngine
from flowmesh_worker.engines.train.examples import Example, Examples, assemble
from flowmesh_worker.engines.train.preferences import Preferences
from flowmesh_worker.engines.train.tokens import TrainingTokenizer


class TrainReward(TrainEngine):
    """The engine ``train.reward``; see :class:`flowmesh_worker.engine_api.Engine`."""

    name = "train.reward"
    reward = True
    sequences = 2

    def read(self, work: Work, tokenizer: Any, limit: int) -> Examples:
        """See :meth:`TrainEngine.read`; examples have ``chosen_ids`` and ``rejected_ids``."""
        preferences = Preferences(work.params, TrainingTokenizer(tokenizer))

        def read(row: Mapping[str, Any], number: int) -> tuple[Example | None, int, bool]:
            pair = preferences.pair(row, number)
            if pair is None:
                return None, 0, False
            _, chosen, rejected = pair
            longest = max(len(chosen), len(rejected))
            if longest > limit:  # a truncated answer is not the one that was preferred
                return None, 0, False
            return {"chosen_ids": chosen, "rejected_ids": rejected}, longest, False

        return assemble(work.dataset("rows").rows(), work.params, read)

    def build(self, session: Any) -> Any:
        """Returns TRL's trainer."""
        from datasets import Dataset  # noqa: PLC0415 - heavy
        from trl import RewardConfig, RewardTrainer  # noqa: PLC0415 - heavy

        params, examples = session.params, session.examples
        args = RewardConfig(
            **session.arguments,
            max_length=None,  # longer rows are dropped by ``read``
            center_rewards_coefficient=params["center_rewards_coefficient"],
        )
        return RewardTrainer(
            session.model(),
            args,
            train_dataset=Dataset.from_list(examples.train),
            eval_dataset=Dataset.from_list(examples.test) if examples.test else None,
            processing_class=session.tokenizer,
            peft_config=session.peft_config(),
            callbacks=session.callbacks,
        )
