"""Digests of downloaded outputs, to compare them with those of another fabric."""

import hashlib
from pathlib import Path


def digests(folder: Path) -> dict[str, str]:
    """Returns the SHA-256 of every file below a folder, by its relative path."""
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }
