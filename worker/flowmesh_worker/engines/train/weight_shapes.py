"""Reads the shapes of a model's weights from the headers of its files."""

import json
import math
from collections.abc import Mapping
from pathlib import Path

from flowmesh_worker.engines.errors import bad_input

Shapes = Mapping[str, tuple[int, ...]]
_LENGTH_BYTES = 8
_HEADER_BYTES_MAX = 100_000_000
_MATRIX = 2


def read_shapes(folder: Path) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of all weights of a Hugging Face directory by name.

    Raises:
        AttemptError: bad input; a file is not a safetensors file.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for file in sorted(folder.glob("*.safetensors")):
        try:
            with file.open("rb") as source:
                length = int.from_bytes(source.read(_LENGTH_BYTES), "little")
                header = json.loads(source.read(min(length, _HEADER_BYTES_MAX)))
            shapes |= {
                name: tuple(map(int, entry["shape"]))
                for name, entry in header.items()
                if name != "__metadata__"
            }
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as e:
            raise bad_input(
                f"the model's {file.name} is not a safetensors file", "import the model again"
            ) from e
    return shapes


def elements(shapes: Shapes) -> int:
    """Returns the number of parameters in all weights."""
    return sum(math.prod(shape) for shape in shapes.values())


def matrix_elements(shapes: Shapes) -> int:
    """Returns the number of parameters in the layers' matrices, which 8-bit loading shrinks."""
    return sum(math.prod(s) for n, s in shapes.items() if _in_layers(n, s))


def lora_elements(shapes: Shapes, rank: int, targets: tuple[str, ...]) -> int:
    """Returns the number of parameters of LoRA layers of rank ``rank`` on these modules.

    Args:
        shapes: of the model's weights.
        rank: LoRA's.
        targets: names of modules; empty or ``all-linear`` counts every matrix in the layers, an
            upper bound.
    """
    everywhere = not targets or targets == ("all-linear",)
    total = 0
    for name, shape in shapes.items():
        module = name.removesuffix(".weight").rpartition(".")[2]
        if _in_layers(name, shape) and (everywhere or module in targets):
            total += rank * sum(shape)
    return total


def _in_layers(name: str, shape: tuple[int, ...]) -> bool:
    # Layers are numbered: model.layers.0.self_attn.q_proj.weight, h.0.attn.c_attn.weight
    return len(shape) == _MATRIX and any(part.isdigit() for part in name.split("."))
