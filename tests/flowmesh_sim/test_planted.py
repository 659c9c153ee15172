"""The soak finds each of several mistakes that are planted into a copy of the code.

Each patch in ``planted/`` is one mistake. The number of seeds that each needs is printed (``-s``);
see ``docs/simulator.md``.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PATCHES = sorted((Path(__file__).parent / "planted").glob("*.patch"))
PACKAGES = ("api", "core", "store", "control", "sim")
SEEDS = 100
"""Among so many worlds each mistake shows."""


def planted(patch: Path, folder: Path) -> dict[str, str]:
    """Copies the packages with the mistake; returns the environment variables to run them."""
    for name in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    applied = subprocess.run(
        ["git", "apply", str(patch)], cwd=folder, capture_output=True, text=True, check=False
    )
    assert applied.returncode == 0, (
        f"{patch.name} no longer applies, since the code around the mistake has changed: make the "
        f"same mistake in the code as it is now and write its diff there\n{applied.stderr}"
    )
    paths = os.pathsep.join(str(folder / name) for name in PACKAGES)
    return {**os.environ, "PYTHONPATH": paths}


def test_there_are_at_least_five_planted_mistakes() -> None:
    assert len(PATCHES) >= 5


@pytest.mark.slow
@pytest.mark.parametrize("patch", PATCHES, ids=lambda p: p.stem)
def test_a_planted_mistake_is_caught(patch: Path, tmp_path: Path) -> None:
    environment = planted(patch, tmp_path)
    soak = ("--seeds", f"0-{SEEDS - 1}", "--jobs", "1", "--first", "--fresh")
    done = subprocess.run(
        [sys.executable, "-m", "flowmesh_sim.soak", *soak],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    found = re.search(r"^seed (\d+): (.*)$", done.stdout, re.MULTILINE)
    assert found is not None, f"{SEEDS} seeds did not show it\n{done.stdout}{done.stderr}"
    line = f"{patch.stem}: caught after {int(found[1]) + 1} seeds: {found[2]}"
    print(line)  # noqa: T201 - shown with -s
    assert done.returncode == 1


def test_a_patch_that_no_longer_applies_is_reported_with_a_remedy(tmp_path: Path) -> None:
    patch = tmp_path / "old.patch"
    patch.write_text(PATCHES[0].read_text().replace("     ", "      "))
    with pytest.raises(AssertionError, match=r"old\.patch no longer applies"):
        planted(patch, tmp_path / "copy")
