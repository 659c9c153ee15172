"""TRL's PPOTrainer, changed so that it can stop after any step and resume.

TRL's loop always begins at its first step, and uses generators that it never saves. Here the
prompts and the samples of a step depend only on the seed and the step's number, so that a
checkpoint needs only the weights, the optimizer's moments and the step's number.

Imported only by hosts that train: torch and TRL come with it.
"""

import hashlib
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback, set_seed
from transformers.trainer import TRAINER_STATE_NAME
from trl.experimental.ppo import PPOTrainer

from flowmesh_worker.engines.train.ppo_figures import ppo_figures

_SEED_BYTES = 4


class PromptBatches:
    """Yields the prompts of each step, without end, from ``next_step`` on.

    Yielding a batch begins its step: the generators of torch, numpy and Python are seeded for it.
    """

    def __init__(
        self, prompts: Sequence[Sequence[int]], batch: int, pad_token_id: int, seed: int
    ) -> None:
        """Begins at step 0.

        Args:
            prompts: token ids, at least ``batch`` of them.
            batch: prompts of a step.
            pad_token_id: pads shorter prompts on the left.
            seed: of the whole training.
        """
        self._prompts = prompts
        self._batch = batch
        self._pad = pad_token_id
        self._seed = seed
        self.next_step = 0

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        """Yields batches of token ids, padded on the left."""
        while True:
            chosen = self.numbers(self.next_step)
            set_seed(drawn_seed(self._seed, self.next_step))
            self.next_step += 1
            yield {"input_ids": self._padded([self._prompts[i] for i in chosen])}

    def numbers(self, step: int) -> list[int]:
        """Returns the prompts of a step: each epoch is shuffled, an incomplete batch is dropped."""
        passes, place = divmod(step, len(self._prompts) // self._batch)
        generator = torch.Generator().manual_seed(drawn_seed(self._seed, passes, "order"))
        order: list[int] = torch.randperm(len(self._prompts), generator=generator).tolist()
        return order[place * self._batch : (place + 1) * self._batch]

    def _padded(self, prompts: Sequence[Sequence[int]]) -> torch.Tensor:
        longest = max(map(len, prompts))
        rows = [[self._pad] * (longest - len(p)) + list(p) for p in prompts]
        return torch.tensor(rows, dtype=torch.long)


def drawn_seed(seed: int, number: int, purpose: str = "step") -> int:
    """Returns a seed that is derived from a training's seed, a number and a purpose."""
    text = f"{purpose}/{seed}/{number}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=_SEED_BYTES).digest(), "big")


class ResumablePPOTrainer(PPOTrainer):  # type: ignore[misc]  # no types there
    """PPO that can begin at a checkpoint, with reproducible logs."""

    def __init__(
        self, *, prompts: PromptBatches, callbacks: Sequence[TrainerCallback], **given: Any
    ) -> None:
        """Creates a PPOTrainer with its own batches of prompts.

        Args:
            prompts: replaces the data loader over ``train_dataset``.
            callbacks: called at every step; their exceptions end the training.
            **given: arguments of PPOTrainer.
        """
        super().__init__(**given, callbacks=[_Begin(self), *callbacks])
        self.dataloader = prompts
        self._prompts = prompts
        self._begins_at = 0
        # Sums that other trainers accumulate between log entries; PPO logs each step by itself.
        self._tr_loss = torch.zeros(())
        self._globalstep_last_logged = 0
        self.accelerator.print = _ignore

    def shift_to_beginning(self) -> None:
        """Sets the counts of steps done, after TRL has set them to 0 and before its first step."""
        total = self.args.num_total_batches
        self.state.global_step = self._begins_at
        self.state.episode = self._begins_at * self.args.batch_size
        # TRL's loop counts from 1 to this number; a step does not depend on its count.
        self.args.num_total_batches = total - self._begins_at

    def train(self, resume_from_checkpoint: str | None = None) -> None:
        """Trains; afterwards ``model`` is only the policy.

        Args:
            resume_from_checkpoint: the folder of a checkpoint, loaded by ``CheckpointRestore``;
                None to begin at the start.
        """
        if resume_from_checkpoint is not None:
            self._load_from_checkpoint(resume_from_checkpoint)
            self._load_optimizer_and_scheduler(resume_from_checkpoint)
            self._load_rng_state(resume_from_checkpoint)
            saved = type(self.state).load_from_json(
                str(Path(resume_from_checkpoint) / TRAINER_STATE_NAME)
            )
            self._begins_at = self._prompts.next_step = saved.global_step
            self.state.log_history = saved.log_history
        with warnings.catch_warnings():
            # The variance of a single ratio, which ``ppo_figures`` removes.
            warnings.filterwarnings("ignore", r"var\(\): degrees of freedom is <= 0", UserWarning)
            super().train()
        self.model = self.policy_model

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Logs a step's metrics under the names that all trainers use, without times."""
        step = self.state.global_step
        if step % self.args.logging_steps == 0 or step >= self.state.max_steps:
            figures = ppo_figures(logs, vf_coef=self.args.vf_coef, updates=self._updates)
            super().log(figures, start_time)

    @property
    def _updates(self) -> int:
        """Probability ratios that TRL records in one step."""
        args = self.args
        micro_batches = args.gradient_accumulation_steps * args.world_size
        return int(args.num_ppo_epochs * args.num_mini_batches * micro_batches)


def _ignore(*_: Any, **__: Any) -> None:
    """Replaces accelerate's print, which TRL uses for a message in the user's log."""


class _Begin(TrainerCallback):  # type: ignore[misc]  # no types there
    """Sets the first step: TRL's loop has no other hook for that."""

    def __init__(self, trainer: ResumablePPOTrainer) -> None:
        self._trainer = trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Called after TRL has set its counts to 0."""
        self._trainer.shift_to_beginning()
