"""Importing the packages imports no engine library."""

import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = (
    *("api", "documents", "core", "store", "control", "worker", "cli", "sim"),
    *("serving", "sdk"),
)
HEAVY = ("torch", "vllm", "transformers", "trl", "peft", "kopf", "kubernetes")


def test_importing_everything_but_the_engines_loads_no_engine_library() -> None:
    names = sorted(_modules())
    script = f"""
import importlib, sys
for name in {names!r}:
    importlib.import_module(name)
    loaded = [heavy for heavy in {HEAVY!r} if heavy in sys.modules]
    if loaded:
        sys.exit(f"importing {{name}} loads {{', '.join(loaded)}}; import it where it is used")
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("what", "said"), [("python", "Python 3.11"), ("go", "Go"), ("numa", "libnuma.so.1")]
)
def test_a_missing_prerequisite_is_named_with_its_remedy(what: str, said: str) -> None:
    done = subprocess.run(
        [str(ROOT / "hack" / "require.sh"), what, "/no/such/command"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert re.match(rf"error: .*{re.escape(said)}", done.stderr)
    assert "make " in done.stderr


def _modules() -> set[str]:
    """Every module of the packages that a control plane, CLI or agent may load."""
    places = [str(ROOT / package) for package in PACKAGES]
    found: set[str] = set()
    for place, package in zip(places, PACKAGES, strict=True):
        root = f"flowmesh_{package}"
        found.add(root)
        walk = pkgutil.walk_packages([f"{place}/{root}"], f"{root}.", onerror=lambda _: None)
        found |= {m.name for m in walk if not m.name.startswith("flowmesh_worker.engines.")}
    return {name for name in found if not name.endswith("__main__")}
