"""Checks a model directory: it may contain data, but no file that runs code when loaded."""

from pathlib import Path, PurePosixPath

from flowmesh_worker.engines.errors import bad_input

_SAFE_ENDINGS = frozenset({".safetensors", ".json", ".jinja", ".txt", ".model", ".md"})
_SAFE_NAMES = frozenset({"LICENSE", "NOTICE", "README"})
_PICKLES = frozenset({".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt", ".h5", ".msgpack"})
WANTED = ("*.safetensors", "*.json", "*.jinja", "*.txt", "*.model")
"""The files to fetch from a hub."""


def is_safe(name: str) -> bool:
    """Whether a file of this name contains only data."""
    path = PurePosixPath(name)
    return path.suffix in _SAFE_ENDINGS or path.name in _SAFE_NAMES


def is_pickle(name: str) -> bool:
    """Whether a file of this name has weights in a format that is refused."""
    return PurePosixPath(name).suffix in _PICKLES


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
                "keep safetensors, JSON and tokenizer files only; weights in .bin or .pt are"
                " pickles: convert them to safetensors",
            )
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
