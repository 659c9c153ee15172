"""Tests of faults and attacks fail where the mistake that they are for is made in the code.

Each patch in ``planted/`` is one mistake; its first line names the test that has to fail. That test
imports a copy of the packages. ``make nightly`` runs them all.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
PATCHES = sorted((Path(__file__).parent / "planted").glob("*.patch"))
PACKAGES = ("core", "worker", "serving")
_FAILED = 1


def applied(patch: Path, folder: Path, *more: str) -> None:
    """Makes the mistake in a folder that has the packages."""
    done = subprocess.run(
        ["git", "apply", *more, str(patch)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "GIT_CEILING_DIRECTORIES": str(folder.parent)},
    )
    assert done.returncode == 0, (
        f"{patch.name} no longer applies, since the code around the mistake has changed: make the "
        f"same mistake in the code as it is now and write its diff there\n{done.stderr}"
    )


def copied(folder: Path) -> None:
    for name in PACKAGES:
        ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)


def test_every_mistake_can_still_be_made_and_names_its_test(tmp_path: Path) -> None:
    copied(tmp_path)
    for patch in PATCHES:
        applied(patch, tmp_path, "--check")
        path, _, name = named_test(patch).partition("::")
        assert f"def {name}(" in (ROOT / path).read_text(), patch.name


def named_test(patch: Path) -> str:
    """Returns the test that a patch has to be caught by."""
    return patch.read_text().split("\n", 1)[0].removeprefix("Caught by ")


@pytest.mark.nightly
@pytest.mark.parametrize("patch", PATCHES, ids=lambda p: p.stem)
def test_a_planted_mistake_is_caught_by_its_test(patch: Path, tmp_path: Path) -> None:
    assert_caught(patch, tmp_path)


def assert_caught(patch: Path, tmp_path: Path) -> None:
    """Fails unless the test that a patch names fails on a copy of the packages with the mistake."""
    copied(tmp_path)
    applied(patch, tmp_path)
    paths = os.pathsep.join(str(tmp_path / name) for name in PACKAGES)
    arguments = ["-q", "-x", "-p", "no:xdist", "-p", "no:cacheprovider", "--timeout", "120"]
    arguments += ["-o", "pythonpath="]  # of pyproject.toml: the packages without the mistake
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments, named_test(patch)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == _FAILED, done.stdout[-3000:]
    assert "1 failed" in done.stdout
