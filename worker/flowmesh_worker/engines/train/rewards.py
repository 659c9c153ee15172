"""Reward functions for GRPO's trainer: from a batch of completions to numbers.

A function wraps a verifier or a reward model. Its ``__name__`` is the name of its values in
``metrics`` and ``curve``. Imported only by hosts that train.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from flowmesh_core.catalog.verifiers import metric_names
from flowmesh_worker.engines.verifiers.verifiers import (
    JudgedCompletion,
    VerifierCheck,
    compile_checks,
)

Rewards = Callable[..., list[float | None]]
"""Called by TRL with ``prompts``, ``completions``, ``completion_ids`` and the other columns."""
REWARD_MODEL = "reward_model"


def verifier_rewards(
    checks: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]
) -> list[Rewards]:
    """Returns one function for each check.

    Args:
        checks: the parameter ``reward_funcs``.
        rows: of the action; the column ``number`` of a batch has their indices.
    """
    compiled, names = compile_checks(checks), metric_names(checks)
    return [_reward(check, name, rows) for check, name in zip(compiled, names, strict=True)]


def _reward(check: VerifierCheck, name: str, rows: Sequence[Mapping[str, Any]]) -> Rewards:
    def reward(
        completions: Sequence[Any],
        completion_ids: Sequence[Sequence[int]],
        number: Sequence[int],
        **_: Any,
    ) -> list[float | None]:
        return [
            check.judge(JudgedCompletion(text_of(completion), len(ids)), rows[n])
            for completion, ids, n in zip(completions, completion_ids, number, strict=True)
        ]

    reward.__name__ = name
    return reward


def text_of(completion: Any) -> str:
    """Returns a completion's text: TRL passes a text, or the messages of a chat."""
    return completion if isinstance(completion, str) else str(completion[0]["content"])


def model_rewards(model: Any, tokenizer: Any, *, eos_token_id: int | None, batch: int) -> Rewards:
    """Returns the function that scores with a reward model.

    Args:
        model: with a head with one output.
        tokenizer: its own; it reads the text, not the policy's tokens.
        eos_token_id: the policy's end token: if a completion contains it, the reward model's own
            end token is added, as in its training.
        batch: completions that go through the model together.
    """
    tokenizer.padding_side = "right"
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    model.config.pad_token_id = tokenizer.pad_token_id
    model.eval()

    def text(prompt: Any, completion: Any, ids: Sequence[int]) -> str:
        if not isinstance(prompt, str):
            return str(tokenizer.apply_chat_template([*prompt, *completion], tokenize=False))
        ended = eos_token_id is not None and eos_token_id in ids
        return str(prompt + completion + (tokenizer.eos_token if ended else ""))

    def reward(
        prompts: Sequence[Any],
        completions: Sequence[Any],
        completion_ids: Sequence[Sequence[int]],
        **_: Any,
    ) -> list[float | None]:
        texts = [text(*one) for one in zip(prompts, completions, completion_ids, strict=True)]
        scores: list[float | None] = []
        special = isinstance(prompts[0], str)  # a chat template writes its own special tokens
        for at in range(0, len(texts), batch):
            given = tokenizer(
                texts[at : at + batch],
                return_tensors="pt",
                padding=True,
                add_special_tokens=special,
            ).to(model.device)
            with torch.inference_mode():
                scores += model(**given).logits[:, 0].float().tolist()
        return scores

    reward.__name__ = REWARD_MODEL
    return reward
