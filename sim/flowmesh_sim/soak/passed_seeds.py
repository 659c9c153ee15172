"""Stores the seeds that passed with the current code, in a file named by the code's hash."""

from importlib import import_module
from pathlib import Path

from blake3 import blake3

PACKAGES = ("flowmesh_api", "flowmesh_core", "flowmesh_store", "flowmesh_control", "flowmesh_sim")


def code_hash() -> str:
    """Returns the hash of everything that a simulation depends on: sources and constants."""
    found = blake3()
    for name in PACKAGES:
        module = import_module(name).__file__
        assert module is not None, name
        root = Path(module).parent
        for path in sorted([*root.rglob("*.py"), *root.rglob("*.yaml")]):
            found.update(f"{name}/{path.relative_to(root)}\0".encode())
            found.update(path.read_bytes())
    return found.hexdigest()[:16]


class PassedSeeds:
    """The file of passed seeds; adding a seed removes the files of other code."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / code_hash()
        self._has_cleaned = False

    def seeds(self) -> set[int]:
        """Returns the passed seeds."""
        try:
            return {int(line) for line in self._path.read_text().split()}
        except FileNotFoundError:
            return set()

    def add(self, seed: int) -> None:
        """Records that a seed has passed."""
        if not self._has_cleaned:
            self._has_cleaned = True
            self._folder.mkdir(parents=True, exist_ok=True)
            for path in self._folder.iterdir():
                if path != self._path and path.is_file():
                    path.unlink()
        with self._path.open("a") as file:
            file.write(f"{seed}\n")
