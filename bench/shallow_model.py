"""The first layer of the built-in model: real prompts and tokens, in a tenth of the time.

Called by ``side_channels.py``, whose samples need the time that a prompt takes, and not its answer.
"""

import json
import shutil
from pathlib import Path

from generate import builtin_model
from safetensors import safe_open
from safetensors.numpy import save_file

_WEIGHTS = "model.safetensors"


def shallow_model(folder: Path) -> Path:
    """Writes the first layer of the built-in model to a directory.

    Args:
        folder: an existing directory, for this model and the whole one.
    """
    whole, target = builtin_model(folder), folder / "shallow"
    shutil.copytree(whole, target, ignore=shutil.ignore_patterns(_WEIGHTS))
    with safe_open(whole / _WEIGHTS, "np") as weights:
        names = list(weights.keys())
        kept = {name: weights.get_tensor(name) for name in names if _layer(name) == 0}
    save_file(kept, target / _WEIGHTS, metadata={"format": "pt"})
    config = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 1}))
    return target


def _layer(name: str) -> int:
    """Returns the layer of a weight; 0 for those of no layer."""
    parts = name.split(".")
    return int(parts[2]) if parts[1] == "layers" else 0
