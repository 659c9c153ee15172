"""The renaming tool follows names through imports and scopes, and leaves the rest alone."""

import json
import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).parents[1] / "hack" / "rename.py"
BEFORE = {
    "core/flowmesh_core/__init__.py": "",
    "core/flowmesh_core/run/__init__.py": (
        "from flowmesh_core.run.held import Held\n\n__all__ = ['Held']\n"
    ),
    "core/flowmesh_core/run/held.py": "class Held:\n    told: int = 0\n",
    "core/flowmesh_core/user.py": (
        "from flowmesh_core.run import Held, held\n\n\n"
        "def one(held_: 'Held') -> int:\n    return held_.told\n\n\n"
        "def two(Held):\n    return Held\n\n\n"
        "def three() -> object:\n    return held.Held(told=3)\n"
    ),
    "docs/page.md": "`Held` in `core/flowmesh_core/run/held.py`; Held stays.\n",
}
AFTER = {
    "core/flowmesh_core/machine/__init__.py": (
        "from flowmesh_core.machine.buffer import Buffer\n\n__all__ = ['Buffer']\n"
    ),
    "core/flowmesh_core/machine/buffer.py": "class Buffer:\n    count: int = 0\n",
    "core/flowmesh_core/user.py": (
        "from flowmesh_core.machine import (Buffer, buffer)\n\n\n"
        "def one(held_: 'Buffer') -> int:\n    return held_.count\n\n\n"
        "def two(Held):\n    return Held\n\n\n"
        "def three() -> object:\n    return buffer.Buffer(count=3)\n"
    ),
    "docs/page.md": "`Buffer` in `core/flowmesh_core/machine/buffer.py`; Held stays.\n",
}
TABLE = {
    "names": {"flowmesh_core.run.held.Held": "Buffer"},
    "attributes": {"flowmesh_core.run.held.Held.told": "count"},
    "modules": {
        "flowmesh_core.run": "flowmesh_core.machine",
        "flowmesh_core.run.held": "flowmesh_core.machine.buffer",
    },
}


def project(folder: Path, table: dict[str, dict[str, str]]) -> "subprocess.CompletedProcess[str]":
    """Makes a small repository and runs the tool in it."""
    for name, text in BEFORE.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "table.json").write_text(json.dumps(table))
    for command in (["git", "init", "-q"], ["git", "add", "core", "docs"]):
        subprocess.run(command, cwd=folder, check=True)
    return subprocess.run(
        [sys.executable, str(TOOL), "table.json"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_rename_changes_names_attributes_modules_strings_and_pages(tmp_path: Path) -> None:
    done = project(tmp_path, TABLE)
    assert done.returncode == 0, done.stderr
    assert {name: (tmp_path / name).read_text() for name in AFTER} == AFTER
    assert not (tmp_path / "core/flowmesh_core/run/held.py").exists()


def test_a_missing_name_is_an_error(tmp_path: Path) -> None:
    done = project(tmp_path, {"names": {"flowmesh_core.run.held.Gone": "X"}})
    assert done.returncode == 1
    assert "flowmesh_core.run.held.Gone: there is no such name" in done.stderr
