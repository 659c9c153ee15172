"""Checks a model directory: it may contain data, but no file that runs code when loaded."""

from fnmatch import fnmatch
from pathlib import Path

from flowmesh_core.errors import FlowMeshError
from flowmesh_store.model_files import UNSAFE_REMEDY, is_safe, require_safetensors
from flowmesh_worker.engines.errors import bad_input

WANTED = ("*.safetensors", "*.json", "*.jinja", "*.txt", "*.model")
"""The files to fetch from a hub."""


def is_wanted(name: str) -> bool:
    """Returns whether a file of a hub's model is fetched."""
    return any(fnmatch(name, pattern) for pattern in WANTED)


def check_model(folder: Path, uri: str) -> None:
    """Refuses a directory that is not a complete, safe model.

    Raises:
        AttemptError: bad input; names the file and the remedy.
    """
    files = [f for f in sorted(folder.rglob("*")) if not f.is_dir()]
    names = [f.relative_to(folder).as_posix() for f in files]
    for file, name in zip(files, names, strict=True):
        if file.is_symlink() or not file.is_file():
            raise bad_input(f"{uri}: {name} is not a plain file", "copy the model without links")
        if not is_safe(name):
            raise bad_input(
                f"{uri}: {name} is not a file that a model may contain",
                UNSAFE_REMEDY,
            )
        if name.endswith(".safetensors"):
            _require_weights(file, name, uri)
    if not any(n.endswith(".safetensors") for n in names):
        raise bad_input(
            f"{uri}: there are no *.safetensors weights",
            "convert the weights to safetensors (pickled .bin or .pt files are refused)",
        )
    missing = {"config.json"} - set(names)
    if not any(n in names for n in ("tokenizer.json", "tokenizer.model", "vocab.json")):
        missing.add("tokenizer.json")
    if missing:
        raise bad_input(
            f"{uri}: {' and '.join(sorted(missing))} is missing", "add the model's own files"
        )


def _require_weights(file: Path, name: str, uri: str) -> None:
    try:
        require_safetensors(file, name)
    except FlowMeshError as e:
        raise bad_input(f"{uri}: {name}: {e.message}", e.remedy) from e
