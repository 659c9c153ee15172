"""Converts parameters of ``with`` to a LoRA configuration. Imported only by hosts that train."""

from collections.abc import Mapping
from typing import Any

from peft import LoraConfig, TaskType
from peft.utils import TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING

from flowmesh_worker.engines.errors import bad_input

ALL_LINEAR = "all-linear"


def lora_config(params: Mapping[str, Any], *, reward: bool) -> LoraConfig:
    """Returns the configuration of a new adapter.

    Args:
        params: of the action.
        reward: whether the model has a score head; PEFT then trains and saves it with the adapter.
    """
    named = list(params["lora_target_modules"] or ())
    return LoraConfig(
        task_type=TaskType.SEQ_CLS if reward else TaskType.CAUSAL_LM,
        r=params["lora_r"],
        lora_alpha=params["lora_alpha"],
        lora_dropout=params.get("lora_dropout", 0.0),
        target_modules=ALL_LINEAR if named == [ALL_LINEAR] else (named or None),
    )


def target_modules(params: Mapping[str, Any], architecture: str) -> tuple[str, ...]:
    """Returns the names of the modules that get LoRA layers, without loading the model.

    Args:
        params: of the action.
        architecture: ``model_type`` of the model's configuration.

    Raises:
        AttemptError: bad input; PEFT has no default for the architecture.
    """
    named = tuple(params["lora_target_modules"] or ())
    known = TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING.get(architecture)
    if not named and not known:
        raise bad_input(
            f"PEFT does not know which modules of {architecture!r} models to adapt",
            "name them in with.lora_target_modules, or write [all-linear]",
        )
    return named or tuple(sorted(known))
