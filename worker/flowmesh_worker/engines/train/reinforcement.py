"""The base class of the reinforcement learning engines: prompts and a reward model.

Imports nothing heavy.
"""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from flowmesh_worker.engine_api import HostSettings, TreeInput, Work
from flowmesh_worker.engines.errors import bad_input
from flowmesh_worker.engines.train.engine import TrainEngine
from flowmesh_worker.engines.train.examples import Examples
from flowmesh_worker.engines.train.memory import ModelSize, TrainingPlan
from flowmesh_worker.engines.train.model_config import ModelConfig, read_trainee
from flowmesh_worker.engines.train.prompts import ContextBudget, read_prompts

REWARD = "reward"
"""The port of the reward model."""
MIB = 1024 * 1024


class ReinforcementEngine(TrainEngine):
    """An engine whose model completes prompts and learns from their rewards."""

    completion: ClassVar[str]
    """The parameter that limits a completion, in tokens."""

    def __init__(self) -> None:
        super().__init__()
        self._judge: ModelConfig | None = None
        self._judge_base: Any = None

    async def load(self, components: Mapping[str, TreeInput], settings: HostSettings) -> None:
        """See :meth:`TrainEngine.load`; also reads the reward model, if there is one.

        Raises:
            AttemptError: as there; bad input if the input ``reward`` is not a reward model.
        """
        given = components.get(REWARD)
        if given is not None:
            self._judge = read_trainee(given.path)
            if not self._judge.scores:
                raise bad_input(
                    "input 'reward' has no head that scores",
                    "give a reward model, such as the output of train.reward with use_peft: false",
                )
        await super().load(components, settings)

    def read(self, work: Work, tokenizer: Any, limit: int) -> Examples:
        """See :meth:`TrainEngine.read`; examples are those of ``read_prompts``."""
        room = ContextBudget(limit, int(work.params[self.completion]), self.completion)
        examples = read_prompts(work.dataset("rows").rows(), work.params, tokenizer, room)
        self.check(work, examples)
        return examples

    @abstractmethod
    def check(self, work: Work, examples: Examples) -> None:
        """Refuses batch sizes and inputs that cannot be combined.

        Raises:
            AttemptError: bad input.
        """

    @abstractmethod
    def drawn_together(self, params: Mapping[str, Any]) -> int:
        """Returns the number of completions that are generated at once."""

    def plan(self, work: Work, examples: Examples) -> TrainingPlan:
        """See :meth:`TrainEngine.plan`; adds the memory of generation and of the reward model."""
        assert self._trainee is not None
        plan = super().plan(work, examples)
        drawn = self.drawn_together(work.params) * examples.longest
        cache = drawn * self._trainee.facts.kv_bytes_per_token(self._dtype(self._trainee))
        beside = [("the cache of drawing", _mib(cache))]
        if self._judge is not None:
            beside.append(("the reward model", weights_mib(self._judge_size())))
        return replace(
            plan,
            batch=int(work.params["per_device_train_batch_size"]),
            beside=tuple(beside),
        )

    def _judge_size(self, rank: int = 0, targets: tuple[str, ...] = ("",)) -> ModelSize:
        assert self._judge is not None
        return self._judge.size(self._dtype(self._judge), rank, targets)

    def _dtype(self, model: ModelConfig) -> str:
        assert self._settings is not None
        given = str(self._settings.signature_params.get("dtype", "auto"))
        return model.facts.resolve_dtype(given)

    def _load(self) -> Any:
        base = super()._load()
        if self._judge is not None:
            from flowmesh_worker.engines.train.base_model import (  # noqa: PLC0415 - brings torch
                BaseModel,
            )

            assert self._settings is not None
            self._judge_base = BaseModel(self._judge, self._settings, reward=True, in_8bit=False)
            self._judge_base.load_shared()
        return base


def completions_a_step(params: Mapping[str, Any]) -> int:
    """Returns the completions that one step of the optimizer learns from."""
    return int(params["per_device_train_batch_size"]) * int(params["gradient_accumulation_steps"])


def weights_mib(size: ModelSize) -> int:
    """Returns the size of one copy of a model's weights."""
    return _mib(size.parameters * size.weight_bytes)


def _mib(size_bytes: int) -> int:
    return -(-size_bytes // MIB)
