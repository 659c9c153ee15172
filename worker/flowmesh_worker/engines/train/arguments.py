"""Converts the parameters of ``with`` to the arguments of a trainer.

Names are the same on both sides, so this only selects them, and disables what a trainer must not do
here: report metrics, write checkpoints of its own.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

SHARED = (
    "learning_rate",
    "num_train_epochs",
    "max_steps",
    "per_device_train_batch_size",
    "per_device_eval_batch_size",
    "gradient_accumulation_steps",
    "lr_scheduler_type",
    "warmup_steps",
    "weight_decay",
    "adam_beta1",
    "adam_beta2",
    "adam_epsilon",
    "max_grad_norm",
    "optim",
    "seed",
    "bf16",
    "gradient_checkpointing",
    "logging_steps",
)
"""Parameters that trainers have under the same name; an engine may lack some."""


def trainer_arguments(
    params: Mapping[str, Any], folder: Path, *, on_cpu: bool, evaluates: bool
) -> dict[str, Any]:
    """Returns the keyword arguments that every trainer's configuration has.

    Args:
        params: of the action.
        folder: where the trainer may write; its checkpoints are disabled.
        on_cpu: whether it must not use devices.
        evaluates: whether rows are held out.
    """
    given = {name: params[name] for name in SHARED if name in params}
    steps = int(params.get("eval_steps", 0))
    return given | {
        "output_dir": str(folder),
        "report_to": "none",
        "disable_tqdm": True,
        "logging_strategy": "steps",
        "logging_nan_inf_filter": False,
        "save_strategy": "no",
        "eval_strategy": "steps" if evaluates and steps else "no",
        "eval_steps": steps or None,
        "use_cpu": on_cpu,
        "dataloader_pin_memory": False,
    }
