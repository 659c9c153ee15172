"""The model that trainings start from: loaded once for all actions of a host, never changed.

Imported only by hosts that load a model: torch comes with it.
"""

import copy
from collections.abc import Mapping
from typing import Any

import torch
from accelerate.state import AcceleratorState, GradientState
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    set_seed,
)
from transformers.utils import logging

from flowmesh_worker.engine_api import HostSettings
from flowmesh_worker.engines.errors import bad_input
from flowmesh_worker.engines.models.model_facts import ModelFacts
from flowmesh_worker.engines.train.model_config import ModelConfig

_LOCAL: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
_SCORE = "score"


class BaseModel:
    """Weights, tokenizer and device. Not thread-safe."""

    def __init__(
        self, trainee: ModelConfig, settings: HostSettings, *, reward: bool, in_8bit: bool
    ) -> None:
        """Configures torch and loads the tokenizer; loads no weights yet.

        Args:
            trainee: the model's configuration.
            settings: devices, threads, and ``dtype`` among the signature's parameters.
            reward: whether the model gets a score head instead of the language head.
            in_8bit: whether the layers' matrices are loaded in 8 bits.

        Raises:
            AttemptError: bad input; transformers cannot load the tokenizer.
        """
        logging.disable_progress_bar()
        torch.set_num_threads(max(1, settings.threads))
        # A training repeats to the byte only if sums are computed in the same order.
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.backends.cudnn.benchmark = False
        self.facts = trainee.facts
        self.use_cache = bool(trainee.config.get("use_cache", True))
        self.on_cpu = not settings.devices
        self.device = torch.device("cpu" if self.on_cpu else "cuda:0")
        self.dtype = self.facts.resolve_dtype(str(settings.signature_params.get("dtype", "auto")))
        self._reward = reward
        self._draws_head = reward and not trainee.scores
        self._in_8bit = in_8bit
        self._shared: Any = None
        self._tokenizer = _read(AutoTokenizer, self.facts)

    def tokenizer(self) -> Any:
        """Returns a private copy of the tokenizer, since trainers set its padding."""
        return copy.deepcopy(self._tokenizer)

    def limit(self, params: Mapping[str, Any]) -> int:
        """Returns the maximum tokens of one sequence: ``max_length`` or the context."""
        return min(
            int(params.get("max_length", self.facts.context_length)), self.facts.context_length
        )

    def load_shared(self) -> None:
        """Loads the weights that :meth:`frozen` shares, once."""
        if self._shared is None:
            self._shared = self.fresh(seed=0).requires_grad_(False)

    def frozen(self, *, seed: int) -> Any:
        """Returns a model for one action's adapter; it shares the loaded weights.

        Its modules are private and its weights are shared by all actions: hooks, patches and
        settings of a trainer affect only this action, and weights without gradients are never
        written.

        Args:
            seed: of a new scoring head.
        """
        self.load_shared()
        tensors = [*self._shared.parameters(), *self._shared.buffers()]
        model = copy.deepcopy(self._shared, {id(t): t for t in tensors})
        return self._with_new_head(model, seed)

    def fresh(self, *, seed: int) -> Any:
        """Loads the model again, to train all of it or as a reference.

        Args:
            seed: of a new scoring head.

        Raises:
            AttemptError: bad input; transformers cannot load the model.
        """
        options: dict[str, Any] = {"dtype": getattr(torch, self.dtype), "use_safetensors": True}
        if self._in_8bit:
            from transformers import BitsAndBytesConfig  # noqa: PLC0415 - only where it is asked for

            options["quantization_config"] = BitsAndBytesConfig(load_in_8bit=True)
            options["device_map"] = {"": 0}
        kind: Any = AutoModelForCausalLM
        if self._reward:
            kind, options["num_labels"] = AutoModelForSequenceClassification, 1
        set_seed(seed)
        model = _read(kind, self.facts, **options)
        if not self._in_8bit:
            model = model.to(self.device)
        return self._with_new_head(model, seed)

    def _with_new_head(self, model: Any, seed: int) -> Any:
        """Initializes the score head from the seed, unless the model has one."""
        if not self._draws_head:
            return model
        weight = getattr(model, _SCORE).weight
        generator = torch.Generator().manual_seed(seed)
        drawn = torch.normal(
            0.0, float(model.config.initializer_range), weight.shape, generator=generator
        )
        getattr(model, _SCORE).weight = torch.nn.Parameter(
            drawn.to(weight.dtype).to(weight.device), requires_grad=weight.requires_grad
        )
        return model


def forget_last_trainer() -> None:
    """Clears the process-wide state of accelerate for the last trainer."""
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


def _read(kind: Any, facts: ModelFacts, **options: Any) -> Any:
    try:
        return kind.from_pretrained(str(facts.path), **_LOCAL, **options)
    except (ValueError, OSError, KeyError) as e:
        raise bad_input(
            f"transformers cannot load the model: {e}", "check its config and its files"
        ) from e
