"""Reads the names and shapes of a directory's tensors without a tensor library."""

import json
from pathlib import Path

_LENGTH_BYTES = 8
_HEADER_MAX_BYTES = 100 * 1024 * 1024


def tensor_shapes(folder: Path, pattern: str = "*.safetensors") -> dict[str, tuple[int, ...]]:
    """Reads the headers of all safetensors files that match.

    Args:
        folder: the directory.
        pattern: which of its files.

    Returns:
        The shape of every tensor by name.

    Raises:
        ValueError: a file is not a safetensors file.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for file in sorted(folder.glob(pattern)):
        for name, entry in _header(file).items():
            if name == "__metadata__":
                continue
            try:
                shapes[name] = tuple(int(n) for n in entry["shape"])
            except (LookupError, TypeError, OverflowError) as e:
                raise _no_safetensors(file) from e
    return shapes


def head_labels(folder: Path, pattern: str = "*.safetensors") -> int:
    """Returns the outputs per sequence of the classification head; 0 without a head.

    Raises:
        ValueError: as for :func:`tensor_shapes`.
    """
    heads = ("score.weight", "classifier.weight")
    found = (s[0] for n, s in tensor_shapes(folder, pattern).items() if n.endswith(heads))
    return next(found, 0)


def _header(file: Path) -> dict[str, dict[str, list[int]]]:
    with file.open("rb") as opened:
        length = int.from_bytes(opened.read(_LENGTH_BYTES), "little")
        if length > min(_HEADER_MAX_BYTES, file.stat().st_size):
            raise _no_safetensors(file)
        try:
            header = json.loads(opened.read(length))
        except (ValueError, RecursionError) as e:
            raise _no_safetensors(file) from e
    if not isinstance(header, dict):
        raise _no_safetensors(file)
    return header


def _no_safetensors(file: Path) -> ValueError:
    return ValueError(f"{file.name} is not a safetensors file")
