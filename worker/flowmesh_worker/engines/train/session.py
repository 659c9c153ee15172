"""Runs one training, from its examples to its outputs, in the engine's thread.

Imported only by hosts that train: torch, transformers and PEFT come with it.
"""

import copy
import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from threading import Event
from typing import Any

import torch
from peft.utils.error import NoMatchingPeftModuleError
from transformers import set_seed
from transformers.trainer_callback import PrinterCallback, ProgressCallback

from flowmesh_worker.engine_api import Metrics, Output, Result, Tree, Usage, Work
from flowmesh_worker.engines.errors import bad_input
from flowmesh_worker.engines.train.arguments import trainer_arguments
from flowmesh_worker.engines.train.base_model import BaseModel, forget_last_trainer
from flowmesh_worker.engines.train.checkpoint_callback import CheckpointCallback
from flowmesh_worker.engines.train.curve import curve, curve_rows, metrics
from flowmesh_worker.engines.train.examples import Examples
from flowmesh_worker.engines.train.lora import lora_config
from flowmesh_worker.engines.train.progress_callback import TrainingProgressCallback
from flowmesh_worker.engines.train.saving import save_adapter, save_model

Build = Callable[["TrainingSession"], Any]
"""Creates the trainer of one action: a ``transformers.Trainer`` that is not started."""


@dataclass(frozen=True, slots=True)
class TrainingSession:
    """The parts of one action's trainer.

    Attributes:
        work: the action.
        base: the host's model.
        examples: the examples.
        tokenizer: the action's own.
        reward: whether the model has a score head.
        arguments: keyword arguments that every trainer's configuration has.
        checkpoints: writes checkpoints; the last of the callbacks.
        callbacks: of the trainer.
    """

    work: Work
    base: BaseModel
    examples: Examples
    tokenizer: Any
    reward: bool
    arguments: Mapping[str, Any]
    checkpoints: CheckpointCallback
    callbacks: list[Any]

    @property
    def params(self) -> Mapping[str, Any]:
        """The action's parameters."""
        return self.work.params

    @property
    def limit(self) -> int:
        """The maximum tokens of one sequence."""
        return self.base.limit(self.params)

    @property
    def seed(self) -> int:
        """The action's seed."""
        return int(self.params["seed"])

    def model(self) -> Any:
        """Returns the model to train: with frozen weights for an adapter, or a full copy."""
        adapted = bool(self.params["use_peft"])
        return self.base.frozen(seed=self.seed) if adapted else self.base.fresh(seed=self.seed)

    def reference(self) -> Any:
        """Returns the reference model; None if the adapter can be disabled instead."""
        return None if self.params["use_peft"] else self.base.fresh(seed=self.seed)

    def peft_config(self) -> Any:
        """Returns the adapter's configuration; None for full fine-tuning."""
        return lora_config(self.params, reward=self.reward) if self.params["use_peft"] else None


def open_session(
    work: Work,
    base: BaseModel,
    examples: Examples,
    tokenizer: Any,
    *,
    engine: str,
    reward: bool,
    told: Callable[[float, float], None],
    stop: Event,
) -> TrainingSession:
    """Creates the parts of a trainer.

    Args:
        work: the action.
        base: the host's model.
        examples: the examples.
        tokenizer: the action's own.
        engine: the engine's name.
        reward: whether the model has a score head.
        told: called with the steps done and the total.
        stop: set when the action is cancelled.
    """
    arguments = trainer_arguments(
        work.params, work.out_dir / "trainer", on_cpu=base.on_cpu, evaluates=bool(examples.test)
    )
    checkpoints = CheckpointCallback(work, engine)
    callbacks = [
        TrainingProgressCallback(told, lambda: stop.is_set() or work.cancelled.is_set()),
        checkpoints,
    ]
    return TrainingSession(
        work, base, examples, tokenizer, reward, arguments, checkpoints, callbacks
    )


def train(session: TrainingSession, build: Build) -> Result:
    """Trains, evaluates and writes the outputs.

    Args:
        session: the action's.
        build: creates its trainer.

    Raises:
        AttemptError: bad input; the training diverged.
        StoppedAtCheckpointError: the worker leaves; a checkpoint was written.
        TrainingCancelledError: the action was cancelled.
    """
    _refuse_no_steps(session.params)
    forget_last_trainer()
    set_seed(session.seed)
    trainer = None
    try:
        trainer = _built(session, build)
        for noisy in (PrinterCallback, ProgressCallback):
            trainer.remove_callback(noisy)
        # Trainers write their own settings into the model's configuration.
        config = copy.deepcopy(trainer.model.config)
        config.use_cache = session.base.use_cache
        trainer.train(resume_from_checkpoint=session.checkpoints.begin(trainer))
        if session.examples.test and not _evaluated_last(trainer.state):
            trainer.evaluate()
        return _result(session, trainer, config)
    finally:
        del trainer
        forget_last_trainer()
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


def _refuse_no_steps(params: Mapping[str, Any]) -> None:
    """Refuses 0 steps or epochs: transformers would run one step."""
    remedies = {
        "max_steps": "give at least 1, or leave it out to go by num_train_epochs",
        "num_train_epochs": "give more than 0",
    }
    for name, remedy in remedies.items():
        if params.get(name) == 0:
            raise bad_input(f"with.{name} is 0: nothing would be learned", remedy)


def _built(session: TrainingSession, build: Build) -> Any:
    try:
        return build(session)
    except NoMatchingPeftModuleError as e:
        linear = {
            name.rpartition(".")[2]
            for name, module in session.model().named_modules()
            if isinstance(module, torch.nn.Linear)
        }
        raise bad_input(
            f"with.lora_target_modules {list(session.params['lora_target_modules'])} names no"
            " module of the model",
            f"its linear ones are {', '.join(sorted(linear))}; [all-linear] selects them all",
        ) from e


def _evaluated_last(state: Any) -> bool:
    return any(
        "eval_loss" in entry and entry["step"] == state.global_step for entry in state.log_history
    )


def _result(session: TrainingSession, trainer: Any, config: Any) -> Result:
    work, examples = session.work, session.examples
    rows = curve_rows(trainer.state.log_history)
    counts = {
        "rows": len(examples.train),
        **({"test_rows": len(examples.test)} if examples.test else {}),
        **examples.counts,
    }
    figures = metrics(rows, counts, trainer.state.global_step)
    outputs: dict[str, Output] = {"metrics": Metrics(figures), "curve": curve(rows)}
    if session.params["use_peft"]:
        outputs["adapter"] = Tree(save_adapter(trainer.model, work.out_dir / "adapter"))
    else:
        source = session.base.facts.path
        folder = work.out_dir / "model"
        outputs["model"] = Tree(save_model(trainer.model, config, source, folder))
    samples = round(figures["epochs"] * len(examples.train))
    usage = Usage(units=samples, tokens_in=int(figures.get("tokens", 0)))
    if torch.cuda.is_available():
        usage.peak_memory_mib = torch.cuda.max_memory_reserved() // (1024 * 1024)
    return Result(outputs, usage)
