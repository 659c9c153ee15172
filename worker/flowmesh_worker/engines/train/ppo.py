"""The engine ``train.ppo``: proximal policy optimization with TRL and a reward model."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from flowmesh_worker.engine_api import Work
from flowmesh_worker.engines.errors import bad_input
from flowmesh_worker.engines.train.examples import Examples
from flowmesh_worker.engines.train.memory import TrainingPlan, need
from flowmesh_worker.engines.train.reinforcement import (
    MIB,
    ReinforcementEngine,
    completions_a_step,
    weights_mib,
)

_SAME_NAME = (
    "response_length",
    "temperature",
    "missing_eos_penalty",
    "num_ppo_epochs",
    "num_mini_batches",
    "local_rollout_forward_batch_size",
    "kl_coef",
    "kl_estimator",
    "cliprange",
    "vf_coef",
    "cliprange_value",
    "gamma",
    "lam",
    "whiten_rewards",
)
"""Parameters that ``PPOConfig`` has under the same name."""
_WHITENED_AT_LEAST = 8
_DRAWN_LOGIT_BYTES = 8
"""Bytes of one logit while completions are generated: in the list of steps, and stacked."""


class TrainPpo(ReinforcementEngine):
    """The engine ``train.ppo``; see :class:`flowmesh_worker.engine_api.Engine`."""

    name = "train.ppo"
    completion = "response_length"
    references = 1

    def check(self, work: Work, examples: Examples) -> None:
        """See :meth:`ReinforcementEngine.check`."""
        params = work.params
        batch, parts = completions_a_step(params), int(params["num_mini_batches"])
        if len(examples.train) < batch:
            raise bad_input(
                f"a step needs {batch} prompts (per_device_train_batch_size times"
                f" gradient_accumulation_steps), and there are {len(examples.train)}",
                "give more rows, or lower per_device_train_batch_size",
            )
        if batch % parts:
            raise bad_input(
                f"with.num_mini_batches: a step's {batch} prompts cannot be cut into {parts}"
                " equal parts",
                "give a divisor",
            )
        if params["whiten_rewards"] and batch // parts < _WHITENED_AT_LEAST:
            raise bad_input(
                f"with.whiten_rewards: a mini-batch has {batch // parts} prompts, and needs"
                f" {_WHITENED_AT_LEAST} for a variance",
                "raise per_device_train_batch_size, or lower num_mini_batches",
            )

    def drawn_together(self, params: Mapping[str, Any]) -> int:
        """See :meth:`ReinforcementEngine.drawn_together`."""
        return min(completions_a_step(params), int(params["local_rollout_forward_batch_size"]))

    def plan(self, work: Work, examples: Examples) -> TrainingPlan:
        """See :meth:`TrainEngine.plan`; adds the value model, which is trained too."""
        params = work.params
        plan = super().plan(work, examples)
        drawn = completions_a_step(params) * int(params["response_length"])
        logits = drawn * plan.size.vocabulary * _DRAWN_LOGIT_BYTES // MIB
        size = self._judge_size(int(params["lora_r"]), ())
        value = replace(plan, size=size, references=0, full_logits=False, overhead_mib=0, beside=())
        trained = need(value).total
        if plan.use_peft:
            trained -= weights_mib(size)  # the reward model's
        beside = (("logits of drawing", logits), ("the value model's training", trained))
        return replace(plan, beside=plan.beside + beside)

    def build(self, session: Any) -> Any:
        """Returns TRL's trainer, with the policy, the value model and the reward model."""
        from trl.experimental.ppo import PPOConfig  # noqa: PLC0415 - heavy

        from flowmesh_worker.engines.train.ppo_models import (  # noqa: PLC0415 - brings torch
            ppo_models,
        )
        from flowmesh_worker.engines.train.ppo_trainer import (  # noqa: PLC0415 - brings TRL
            PromptBatches,
            ResumablePPOTrainer,
        )

        params, tokenizer = session.params, session.tokenizer
        _same_tokens(tokenizer, self._judge_base.tokenizer())
        prompts = [example["input_ids"] for example in session.examples.train]
        models = ppo_models(session, self._judge_base)
        used = {token for prompt in prompts for token in prompt}
        pad = spare_token(tokenizer, models.policy.config.vocab_size, used)
        tokenizer.pad_token = tokenizer.convert_ids_to_tokens(pad)
        models.policy.generation_config.pad_token_id = pad
        batch = completions_a_step(params)
        args = PPOConfig(
            **session.arguments,
            **{name: params[name] for name in _SAME_NAME},
            stop_token="eos" if params["stop_token"] == "eos" else None,
            total_episodes=episodes(params, len(prompts), batch),
            num_sample_generations=0,
            bf16=False,
        )
        return ResumablePPOTrainer(
            prompts=PromptBatches(prompts, batch, pad, session.seed),
            callbacks=session.callbacks,
            args=args,
            processing_class=tokenizer,
            model=models.policy,
            ref_model=models.reference,
            reward_model=models.reward,
            value_model=models.value,
            train_dataset=prompts,
            peft_config=session.peft_config(),
        )


def episodes(params: Mapping[str, Any], prompts: int, batch: int) -> int:
    """Returns the completions of the whole training; TRL rounds them up to whole steps."""
    if params["total_episodes"] is not None:
        return int(params["total_episodes"])
    if int(params["max_steps"]) > 0:
        return int(params["max_steps"]) * batch
    return max(1, int(float(params["num_train_epochs"]) * prompts))


def spare_token(tokenizer: Any, vocabulary: int, used: Iterable[int]) -> int:
    """Returns a token for padding that has no other meaning.

    TRL's PPO recognizes padding by its token. With the end token, which many models use, the ends
    of a chat's messages would count as padding, and the model would never learn to stop.

    Args:
        tokenizer: of the policy.
        vocabulary: rows of the model's embedding.
        used: the tokens of all prompts.

    Raises:
        AttemptError: bad input; there is no such token.
    """
    unusable = {*used, tokenizer.eos_token_id, tokenizer.bos_token_id}
    own = [tokenizer.pad_token_id] if tokenizer.pad_token_id is not None else []
    special = sorted(tokenizer.added_tokens_decoder, reverse=True)
    found = next((t for t in [*own, *special] if t not in unusable and t < vocabulary), None)
    if found is None:
        raise bad_input(
            "the model's tokenizer has no unused special token for padding",
            "add a pad_token of its own to the tokenizer",
        )
    return int(found)


def _same_tokens(policy: Any, reward: Any) -> None:
    if policy.get_vocab() != reward.get_vocab():
        raise bad_input(
            "the inputs 'model' and 'reward' have different tokens, and in PPO the value model"
            " reads what the policy writes token by token",
            "train the reward model on the same base model, or use train.grpo, which reads text",
        )
