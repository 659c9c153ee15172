"""Reads the configuration and weight shapes of the model to train, before it is loaded."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flowmesh_worker.engines.models.model_facts import DTYPE_BYTES, ModelFacts, read_facts
from flowmesh_worker.engines.train.memory import ModelSize
from flowmesh_worker.engines.train.weight_shapes import (
    Shapes,
    elements,
    lora_elements,
    matrix_elements,
    read_shapes,
)

_SCORES = "ForSequenceClassification"
_INNER_TIMES = 4


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A model directory.

    Attributes:
        facts: the facts that all engines use.
        architecture: ``model_type`` of its configuration.
        scores: whether it has a score head (a reward model).
        shapes: of its weights.
        config: its ``config.json``.
    """

    facts: ModelFacts
    architecture: str
    scores: bool
    shapes: Shapes
    config: Mapping[str, Any]

    def size(self, dtype: str, rank: int, targets: tuple[str, ...]) -> ModelSize:
        """Returns the dimensions that determine the memory.

        Args:
            dtype: of the weights as loaded, or ``auto``.
            rank: of a LoRA adapter.
            targets: the modules that it adapts; empty for every matrix.
        """
        hidden = int(_first(self.config, 1, "hidden_size", "n_embd", "d_model"))
        inner = _first(
            self.config, _INNER_TIMES * hidden, "intermediate_size", "n_inner", "ffn_dim"
        )
        return ModelSize(
            parameters=elements(self.shapes),
            matrices=matrix_elements(self.shapes),
            lora=lora_elements(self.shapes, rank, targets),
            layers=int(_first(self.config, 1, "num_hidden_layers", "n_layer")),
            hidden=hidden,
            inner=int(inner),
            vocabulary=int(_first(self.config, 1, "vocab_size")),
            weight_bytes=DTYPE_BYTES[self.facts.resolve_dtype(dtype)],
        )


def read_trainee(path: Path) -> ModelConfig:
    """Reads ``config.json`` and the headers of the weights.

    Raises:
        AttemptError: bad input; this is not a model directory.
    """
    facts = read_facts(path)
    config = json.loads((path / "config.json").read_text())
    return ModelConfig(
        facts=facts,
        architecture=str(config.get("model_type", "")),
        scores=any(str(a).endswith(_SCORES) for a in config.get("architectures") or ()),
        shapes=read_shapes(path),
        config={**config, **config.get("text_config", {})},
    )


def _first(config: Mapping[str, Any], otherwise: Any, *names: str) -> Any:
    return next((config[n] for n in names if config.get(n)), otherwise)
