"""A model in transformers, and its adapters.

Imported only by hosts that load a model: torch comes with it.
"""

from pathlib import Path
from typing import Any, Literal

import torch
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
)
from transformers.utils import logging

from flowmesh_worker.engine_api import HostSettings, TreeInput
from flowmesh_worker.engines.errors import bad_input, out_of_memory
from flowmesh_worker.engines.models.model_facts import ModelFacts

Head = Literal["language", "score", "none"]
_LOADERS = {
    "language": AutoModelForCausalLM,
    "score": AutoModelForSequenceClassification,
    "none": AutoModel,
}
_MIB = 1024 * 1024
_ADAPTERS_MAX = 8


class TorchModel:
    """Weights, tokenizer and device. Not thread-safe."""

    def __init__(self, model: Any, tokenizer: Any, device: Any) -> None:
        """Wraps a loaded model; callers use :meth:`load`."""
        self.tokenizer = tokenizer
        self.device = device
        self.base = model
        self._peft: Any = None
        self._adapters: list[str] = []

    @classmethod
    def load(cls, facts: ModelFacts, settings: HostSettings, *, head: Head) -> "TorchModel":
        """Loads the weights.

        Args:
            facts: the model.
            settings: memory, devices, and ``dtype`` among the signature's parameters.
            head: ``language``, a ``score`` for each sequence (random if the model has no such
                head), or ``none`` for the hidden states.

        Raises:
            AttemptError: out of memory, or bad input if transformers cannot load the model.
        """
        dtype = facts.resolve_dtype(str(settings.signature_params.get("dtype", "auto")))
        weights_mib = facts.weight_bytes_as(dtype) // _MIB
        if weights_mib > settings.memory_mib:
            raise out_of_memory(
                f"the weights need {weights_mib} MiB as {dtype}; the host may use"
                f" {settings.memory_mib} MiB",
                "raise resources.memory, or use a smaller model or dtype",
            )
        logging.disable_progress_bar()
        torch.set_num_threads(max(1, settings.threads))
        # Seeded samples repeat only if sums are computed in the same order.
        torch.use_deterministic_algorithms(True, warn_only=True)
        device = torch.device("cuda:0" if settings.devices else "cpu")
        options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
        own = {"num_labels": 1} if head == "score" and not facts.scores else {}
        try:
            model = _LOADERS[head].from_pretrained(
                str(facts.path),
                dtype=getattr(torch, dtype),
                use_safetensors=True,
                **own,
                **options,
            )
            tokenizer = AutoTokenizer.from_pretrained(str(facts.path), **options)
        except (ValueError, OSError, KeyError) as e:
            raise bad_input(
                f"transformers cannot load the model: {e}", "check its config and its files"
            ) from e
        return cls(model.to(device).eval(), tokenizer, device)

    def with_adapter(self, adapter: TreeInput | None) -> Any:
        """Returns the model to call, with this adapter enabled, or without adapters."""
        if adapter is None:
            return self.base if self._peft is None else _Disabled(self._peft)
        name = str(adapter.digest)
        if name not in self._adapters:
            self._add(adapter.path, name)
        self._adapters.append(self._adapters.pop(self._adapters.index(name)))
        self._peft.set_adapter(name)
        return self._peft

    def _add(self, adapter: Path, name: str) -> None:
        from peft import PeftModel  # noqa: PLC0415 - only adapters need it

        try:
            if self._peft is None:
                self._peft = PeftModel.from_pretrained(
                    self.base, str(adapter), adapter_name=name
                ).eval()
            else:
                self._peft.load_adapter(str(adapter), adapter_name=name)
        except (ValueError, OSError, KeyError, RuntimeError) as e:
            raise bad_input(
                f"the adapter does not fit the model: {e}",
                "use an adapter that was trained on this model",
            ) from e
        self._adapters.append(name)
        if len(self._adapters) > _ADAPTERS_MAX:
            self._peft.delete_adapter(self._adapters.pop(0))


class _Disabled:
    """Calls a model with its adapters disabled."""

    def __init__(self, peft: Any) -> None:
        self._peft = peft

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with self._peft.disable_adapter():
            return self._peft(*args, **kwargs)
