"""What a training made, written so that the same training gives the same bytes.

Libraries add cards, local paths, pickled arguments and sets in no order; none of it is kept.
"""

import json
import shutil
from pathlib import Path
from typing import Any

_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "vocab.txt",
    "merges.txt",
    "spiece.model",
    "sentencepiece.bpe.model",
    "chat_template.jinja",
    "chat_template.json",
    "generation_config.json",
)
_CARD = "README.md"
_CONFIGS = ("config.json", "adapter_config.json")
_PATHS = ("_name_or_path", "base_model_name_or_path")


def save_model(model: Any, config: Any, source: Path, folder: Path) -> Path:
    """Writes a whole model with the tokenizer that it was trained with.

    Args:
        model: trained.
        config: its configuration, without what the trainer set for itself.
        source: the directory that it came from.
        folder: to be made.
    """
    model.config = config
    model.save_pretrained(str(folder))
    for name in _TOKENIZER_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)
    _tidy(folder)
    return folder


def save_adapter(model: Any, folder: Path) -> Path:
    """Writes the adapter of a PEFT model.

    Args:
        model: with one adapter, ``default``.
        folder: to be made.
    """
    # Embeddings are looked for at the place that the base came from, which may be a hub.
    model.save_pretrained(str(folder), selected_adapters=["default"], save_embedding_layers=False)
    _tidy(folder)
    return folder


def _tidy(folder: Path) -> None:
    (folder / _CARD).unlink(missing_ok=True)
    for name in _CONFIGS:
        file = folder / name
        if file.is_file():
            file.write_text(_canonical(json.loads(file.read_text())))


def _canonical(config: dict[str, Any]) -> str:
    for key in _PATHS:
        if key in config:
            config[key] = None
    # A set of names, which PEFT writes as the process happens to hash it.
    for key in ("target_modules", "modules_to_save"):
        if isinstance(config.get(key), list):
            config[key] = sorted(config[key])
    return json.dumps(config, indent=2, sort_keys=True) + "\n"
