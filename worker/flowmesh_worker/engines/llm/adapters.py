"""Refuses LoRA adapters that vLLM would serve wrongly, before vLLM loads them.

vLLM reads only ``r`` and ``lora_alpha``, ignores ranks by module, and skips whole weights of an
adapter; and a failure while a batch runs ends its engine. So an adapter is compared with the model
here, by the headers of both.
"""

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flowmesh_worker.engines.errors import bad_input
from flowmesh_worker.engines.models.safetensors_header import tensor_shapes

ADAPTER = "adapter"
"""The input port of an adapter."""
MAX_RANK = 64
"""The rank of a slot: adapters rarely have more, and every slot uses memory for it."""
ADAPTER_WEIGHTS = "adapter_model.safetensors"
_PREFIX = "base_model.model."
_EMBEDDINGS = ("embed", "wte", "wpe", "lm_head")
_MERGE = "merge it into the model in a step before (model.merge), or set with.implementation:"
_REMEDY = f"{_MERGE} transformers"
_PLAIN = {
    "use_dora": False,
    "bias": "none",
    "lora_bias": False,
    "rank_pattern": {},
    "alpha_pattern": {},
    "modules_to_save": None,
    "layer_replication": None,
    "target_parameters": None,
    "trainable_token_indices": None,
    "use_qalora": False,
    "alora_invocation_tokens": None,
}
"""Fields of a configuration that vLLM ignores or refuses, with their neutral value."""


@dataclass(frozen=True, slots=True)
class LoraTargets:
    """The layers of a model that adapters may change, from its weights' headers.

    Attributes:
        layers: (outputs, inputs) of every linear layer, by its module's full name.
        names: the last parts of these names.
        has_experts: whether it is a mixture of experts, whose layers vLLM renames.
    """

    layers: dict[str, tuple[int, int]]
    names: frozenset[str]
    has_experts: bool

    @classmethod
    def of_model(cls, folder: Path) -> "LoraTargets":
        """Reads the headers of a model's weights."""
        layers = {}
        for tensor, shape in tensor_shapes(folder).items():
            module, _, kind = tensor.rpartition(".")
            name = module.rpartition(".")[2]
            if kind == "weight" and len(shape) == 2 and not name.startswith(_EMBEDDINGS):  # noqa: PLR2004 - a matrix
                layers[module] = (shape[0], shape[1])
        names = frozenset(module.rpartition(".")[2] for module in layers)
        return cls(layers, names, any(".experts." in module for module in layers))

    def slot_bytes(self, element_bytes: int) -> int:
        """Returns the memory of one adapter slot, at ``MAX_RANK``."""
        return sum(MAX_RANK * (o + i) for o, i in self.layers.values()) * element_bytes

    def check(self, folder: Path) -> None:
        """Refuses an adapter that vLLM would not serve on this model, or would serve wrongly.

        Raises:
            AttemptError: bad input, with the reason and the remedy.
        """
        config, shapes = _read(folder)
        rank = _check_config(config)
        for tensor, shape in shapes.items():
            self._check_tensor(tensor, shape, rank)
            other = _other_half(tensor)
            if other not in shapes:
                raise bad_input(
                    f"the adapter has {tensor} but not {other}", "save it again with PEFT"
                )

    def _check_tensor(self, tensor: str, shape: tuple[int, ...], rank: int) -> None:
        module, kind, _ = tensor.removeprefix(_PREFIX).rpartition(".lora_")
        side = tensor.rpartition(".lora_")[2]
        if not kind or side not in ("A.weight", "B.weight"):
            raise bad_input(f"the adapter has {tensor}, which vLLM would not apply", _REMEDY)
        if module.rpartition(".")[2] not in self.names and not self.has_experts:
            raise bad_input(f"the adapter changes {module}, which vLLM does not adapt", _REMEDY)
        if module not in self.layers:
            return  # vLLM and the file use different names; vLLM decides
        outputs, inputs = self.layers[module]
        if shape != ((rank, inputs) if side[0] == "A" else (outputs, rank)):
            raise bad_input(
                f"the adapter does not fit the model: {tensor} is {'x'.join(map(str, shape))}, its"
                f" layer has {inputs} inputs and {outputs} outputs and the rank is {rank}",
                "use an adapter that was trained on this model",
            )


def _other_half(tensor: str) -> str:
    """Returns the B of an A, or the A of a B: vLLM ignores a layer without its A."""
    module, _, side = tensor.rpartition(".lora_")
    return f"{module}.lora_{'B' if side[0] == 'A' else 'A'}{side[1:]}"


def _read(folder: Path) -> tuple[dict[str, Any], dict[str, tuple[int, ...]]]:
    try:
        config = json.loads((folder / "adapter_config.json").read_text())
        shapes = tensor_shapes(folder, ADAPTER_WEIGHTS)
    except (OSError, ValueError, RecursionError) as e:
        raise bad_input(
            f"the adapter cannot be read: {e}",
            f"give a PEFT directory (adapter_config.json, {ADAPTER_WEIGHTS})",
        ) from e
    if not isinstance(config, dict) or not shapes:
        raise bad_input(
            f"the adapter has no {ADAPTER_WEIGHTS}",
            "save it with PEFT as safetensors (pickled .bin files are refused)",
        )
    return config, shapes


def _check_config(config: dict[str, Any]) -> int:
    """Refuses what vLLM does not serve; returns the rank."""
    if config.get("peft_type") != "LORA":
        raise bad_input(f"the adapter is {config.get('peft_type')}, vLLM serves LORA", _REMEDY)
    for name, plain in _PLAIN.items():
        value = config.get(name)
        if value and value != plain:
            raise bad_input(
                f"the adapter has {name}: {value!r}, which vLLM does not serve", _REMEDY
            )
    rank = config.get("r")
    if not isinstance(rank, int) or not 1 <= rank <= MAX_RANK:
        raise bad_input(f"the adapter has rank {rank}; vLLM serves 1 to {MAX_RANK} here", _REMEDY)
    alpha = config.get("lora_alpha")
    if not isinstance(alpha, int | float) or not -math.inf < alpha < math.inf:
        raise bad_input(f"the adapter has lora_alpha {alpha!r}: expected a number", _REMEDY)
    return rank
