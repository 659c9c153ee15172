"""Saves a trained model or adapter so that the same training gives the same bytes.

Libraries add model cards, local paths, pickled arguments and unordered sets; all are removed.
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
    """Saves a whole model with its tokenizer.

    Args:
        model: trained.
        config: its configuration, without the trainer's own settings.
        source: the directory of the base model.
        folder: to be created.
    """
    model.config = config
    model.save_pretrained(str(folder))
    for name in _TOKENIZER_FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)
    _tidy(folder)
    return folder


def save_adapter(model: Any, folder: Path) -> Path:
    """Saves the adapter of a PEFT model.

    Args:
        model: with one adapter, ``default``.
        folder: to be created.
    """
    # To decide about embeddings, PEFT would read the base model's source, which may be a hub.
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
    # PEFT writes these sets in hash order, which differs between processes.
    for key in ("target_modules", "modules_to_save"):
        if isinstance(config.get(key), list):
            config[key] = sorted(config[key])
    return json.dumps(config, indent=2, sort_keys=True) + "\n"
