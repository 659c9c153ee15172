"""The engine ``train.grpo``: group relative policy optimization with TRL."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from flowmesh_worker.engine_api import Work
from flowmesh_worker.engines.errors import bad_input
from flowmesh_worker.engines.train.examples import Examples
from flowmesh_worker.engines.train.memory import TrainingPlan
from flowmesh_worker.engines.train.reinforcement import (
    ReinforcementEngine,
    completions_a_step,
)

_SAME_NAME = (
    "num_generations",
    "max_completion_length",
    "temperature",
    "top_p",
    "top_k",
    "repetition_penalty",
    "beta",
    "num_iterations",
    "epsilon",
    "epsilon_high",
    "delta",
    "loss_type",
    "importance_sampling_level",
    "scale_rewards",
    "mask_truncated_completions",
    "disable_dropout",
    "reward_weights",
)
"""Parameters that ``GRPOConfig`` has under the same name."""


class TrainGrpo(ReinforcementEngine):
    """The engine ``train.grpo``; see :class:`flowmesh_worker.engine_api.Engine`."""

    name = "train.grpo"
    completion = "max_completion_length"

    def check(self, work: Work, examples: Examples) -> None:
        """See :meth:`ReinforcementEngine.check`."""
        params = work.params
        _check_rewards(params, with_model=self._judge is not None)
        together, group = completions_a_step(params), int(params["num_generations"])
        if together % group:
            raise bad_input(
                f"with.num_generations: {group} completions of a prompt do not divide the"
                f" {together} of a step (per_device_train_batch_size times"
                " gradient_accumulation_steps)",
                f"set per_device_train_batch_size: {group}, or another multiple",
            )
        if len(examples.train) < together // group:
            raise bad_input(
                f"a step needs {together // group} prompts, and there are {len(examples.train)}",
                "give more rows, or lower per_device_train_batch_size",
            )
        evaluated = int(params["per_device_eval_batch_size"])
        if examples.test and evaluated % group:
            raise bad_input(
                f"with.num_generations: {group} completions of a prompt do not divide"
                f" per_device_eval_batch_size: {evaluated}",
                f"set per_device_eval_batch_size: {group}, or another multiple",
            )

    def drawn_together(self, params: Mapping[str, Any]) -> int:
        """See :meth:`ReinforcementEngine.drawn_together`."""
        return completions_a_step(params)

    def plan(self, work: Work, examples: Examples) -> TrainingPlan:
        """See :meth:`TrainEngine.plan`; a reference model is needed only with ``beta``."""
        plan = super().plan(work, examples)
        compares = float(work.params["beta"]) > 0 and not plan.use_peft
        return replace(plan, references=int(compares))

    def build(self, session: Any) -> Any:
        """Returns TRL's trainer."""
        from datasets import Dataset  # noqa: PLC0415 - heavy
        from trl import GRPOConfig  # noqa: PLC0415 - heavy

        from flowmesh_worker.engines.train.grpo_trainer import (  # noqa: PLC0415 - brings TRL
            DeterministicGRPOTrainer,
        )

        params, examples = session.params, session.examples
        columns = ("prompt", "number")
        train, test = (
            Dataset.from_list([{c: e[c] for c in columns} for e in part]) if part else None
            for part in (examples.train, examples.test)
        )
        args = GRPOConfig(
            **session.arguments,
            **{name: params[name] for name in _SAME_NAME},
            # TRL loads the reference model itself, from the policy's folder.
            model_init_kwargs={
                "dtype": session.base.dtype,
                "device_map": None,
                "local_files_only": True,
                "use_safetensors": True,
            },
        )
        session.tokenizer.padding_side = "left"
        return DeterministicGRPOTrainer(
            session.model(),
            self._rewards(session),
            args,
            train_dataset=train,
            eval_dataset=test,
            processing_class=session.tokenizer,
            peft_config=session.peft_config(),
            callbacks=session.callbacks,
        )

    def _rewards(self, session: Any) -> list[Any]:
        from flowmesh_worker.engines.train.rewards import (  # noqa: PLC0415 - brings torch
            model_rewards,
            verifier_rewards,
        )

        params = session.params
        rows = session.work.dataset("rows").rows()
        rewards = verifier_rewards(params["reward_funcs"], rows)
        if self._judge_base is not None:
            rewards.append(
                model_rewards(
                    self._judge_base.frozen(seed=session.seed),
                    self._judge_base.tokenizer(),
                    eos_token_id=session.tokenizer.eos_token_id,
                    batch=int(params["per_device_train_batch_size"]),
                )
            )
        return rewards


def _check_rewards(params: Mapping[str, Any], *, with_model: bool) -> None:
    count = len(params["reward_funcs"]) + with_model
    if not count:
        raise bad_input(
            "there is no reward for the completions",
            "name checks in with.reward_funcs, or connect a reward model to the input 'reward'",
        )
    weights = params["reward_weights"]
    if weights is None:
        return
    wrong = [w for w in weights if isinstance(w, bool) or not isinstance(w, int | float)]
    if wrong or len(weights) != count:
        model = " and the reward model" if with_model else ""
        raise bad_input(
            f"with.reward_weights: expected {count} numbers, for reward_funcs{model};"
            f" got {list(weights)}",
            "give one for each, in that order",
        )
