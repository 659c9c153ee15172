"""TRL's PPOTrainer with a course that can be left after any step and taken up again.

TRL's loop always begins at its first step, and draws from generators that it never saves. Here the
prompts of a step and every draw within it follow from the seed and the step's number alone, so that
weights, the optimizer's moments and the step's number are all that a checkpoint needs.

Imported only once a host trains: torch and TRL come with it.
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
    """The prompts of every step, endlessly, from the step that is next.

    Iterating a batch begins its step: the generators of torch, numpy and Python are seeded for it.
    """

    def __init__(
        self, prompts: Sequence[Sequence[int]], batch: int, pad_token_id: int, seed: int
    ) -> None:
        """Takes the prompts.

        Args:
            prompts: token ids, at least ``batch`` of them.
            batch: prompts of a step.
            pad_token_id: put before shorter prompts.
            seed: of the whole training.
        """
        self._prompts = prompts
        self._batch = batch
        self._pad = pad_token_id
        self._seed = seed
        self.next_step = 0

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        """Batches of token ids, padded on the left."""
        while True:
            chosen = self.numbers(self.next_step)
            set_seed(drawn_seed(self._seed, self.next_step))
            self.next_step += 1
            yield {"input_ids": self._padded([self._prompts[i] for i in chosen])}

    def numbers(self, step: int) -> list[int]:
        """Which prompts a step takes: each pass over them is shuffled, what is left over waits."""
        passes, place = divmod(step, len(self._prompts) // self._batch)
        generator = torch.Generator().manual_seed(drawn_seed(self._seed, passes, "order"))
        order: list[int] = torch.randperm(len(self._prompts), generator=generator).tolist()
        return order[place * self._batch : (place + 1) * self._batch]

    def _padded(self, prompts: Sequence[Sequence[int]]) -> torch.Tensor:
        longest = max(map(len, prompts))
        rows = [[self._pad] * (longest - len(p)) + list(p) for p in prompts]
        return torch.tensor(rows, dtype=torch.long)


def drawn_seed(seed: int, number: int, purpose: str = "step") -> int:
    """A seed that follows from a training's seed and a number, unlike those of other seeds."""
    text = f"{purpose}/{seed}/{number}".encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=_SEED_BYTES).digest(), "big")


class ResumablePPOTrainer(PPOTrainer):  # type: ignore[misc]  # no types there
    """PPO that begins where it is told to, and logs figures that a second run gives again."""

    def __init__(
        self, *, prompts: PromptBatches, callbacks: Sequence[TrainerCallback], **given: Any
    ) -> None:
        """Takes what PPOTrainer takes, and the prompts of its steps.

        Args:
            prompts: in place of a data loader over ``train_dataset``.
            callbacks: told of every step; what they raise ends the training.
            **given: for PPOTrainer.
        """
        super().__init__(**given, callbacks=[_Begin(self), *callbacks])
        self.dataloader = prompts
        self._prompts = prompts
        self._begins_at = 0
        # What other trainers add up between two log entries; each step of PPO logs its own figures.
        self._tr_loss = torch.zeros(())
        self._globalstep_last_logged = 0
        self.accelerator.print = _say_nothing

    def shift_to_beginning(self) -> None:
        """Counts the steps done, once TRL has set its counts to 0 and before its first step."""
        total = self.args.num_total_batches
        self.state.global_step = self._begins_at
        self.state.episode = self._begins_at * self.args.batch_size
        # The loop counts from 1 to this; what a step does does not depend on its count.
        self.args.num_total_batches = total - self._begins_at

    def train(self, resume_from_checkpoint: str | None = None) -> None:
        """Trains; afterwards ``model`` is the policy alone.

        Args:
            resume_from_checkpoint: the folder of a checkpoint, which whoever wrote it also reads
                (see ``CheckpointRestore``); None to begin at the start.
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
            # Of one ratio's variance, which ``ppo_figures`` leaves out.
            warnings.filterwarnings("ignore", r"var\(\): degrees of freedom is <= 0", UserWarning)
            super().train()
        self.model = self.policy_model

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Logs a step under the names that all trainers use, without what depends on time."""
        step = self.state.global_step
        if step % self.args.logging_steps == 0 or step >= self.state.max_steps:
            figures = ppo_figures(logs, vf_coef=self.args.vf_coef, updates=self._updates)
            super().log(figures, start_time)

    @property
    def _updates(self) -> int:
        """Probability ratios that TRL notes in one step."""
        args = self.args
        micro_batches = args.gradient_accumulation_steps * args.world_size
        return int(args.num_ppo_epochs * args.num_mini_batches * micro_batches)


def _say_nothing(*_: Any, **__: Any) -> None:
    """In place of accelerate's print: TRL announces on the user's log that it begins."""


class _Begin(TrainerCallback):  # type: ignore[misc]  # no types there
    """The one place where TRL's loop can be told that it has begun before."""

    def __init__(self, trainer: ResumablePPOTrainer) -> None:
        self._trainer = trainer

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Called after TRL has set its counts to 0."""
        self._trainer.shift_to_beginning()
