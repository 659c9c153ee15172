"""Workflows of the collection that train run on a small model, and each of their rows counts."""

from pathlib import Path

import pytest
from tests.collection.cases import verify
from tests.collection.cases_of_training import TRAINING_CASES

import flowmesh_sdk as fm

pytestmark = [pytest.mark.nightly, pytest.mark.model]


@pytest.mark.parametrize("name", sorted(TRAINING_CASES))
def test_a_model_learns_from_the_rows_that_it_is_given(
    name: str, client: fm.Client, tiny_model: Path
) -> None:
    verify(name, TRAINING_CASES[name], client, {"base": tiny_model})
