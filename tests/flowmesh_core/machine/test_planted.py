"""Tests of the bound on workers fail where the mistake that they are for is made in the code.

Each patch in ``planted/`` is one mistake; its first line names the test that has to fail.
"""

from pathlib import Path

import pytest
from tests.flowmesh_serving.test_planted import ROOT, applied, assert_caught, copied, named_test

PATCHES = sorted((Path(__file__).parent / "planted").glob("*.patch"))


def test_every_mistake_can_still_be_made_and_names_its_test(tmp_path: Path) -> None:
    copied(tmp_path)
    assert len(PATCHES) >= 5
    for patch in PATCHES:
        applied(patch, tmp_path, "--check")
        path, _, name = named_test(patch).partition("::")
        assert f"def {name}(" in (ROOT / path).read_text(), patch.name


@pytest.mark.nightly
@pytest.mark.parametrize("patch", PATCHES, ids=lambda p: p.stem)
def test_a_planted_mistake_is_caught_by_its_test(patch: Path, tmp_path: Path) -> None:
    assert_caught(patch, tmp_path)
