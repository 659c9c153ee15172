"""`eval.exact-match`, the engine alone."""

from pathlib import Path
from typing import Any

import pytest

from flowmesh_core.errors import AttemptError, FailureKind
from flowmesh_store.datasets import rows_to_chunks
from flowmesh_worker.engine_api import DatasetInput, Result, Work
from flowmesh_worker.engines.eval.exact_match import ExactMatch


async def judge(rows: list[dict[str, Any]], **params: Any) -> Result:
    manifest, blobs = rows_to_chunks(rows)
    given = DatasetInput(manifest, tuple(blobs[c.blob] for c in manifest.chunks))
    values = {"prediction": "p", "target": "t", "normalize": False} | params
    work = Work("action", "attempt", values, {}, {"rows": given}, Path("unused"))
    return await ExactMatch().run(work, lambda *_: None)


@pytest.mark.parametrize(
    ("prediction", "target", "normalize", "correct"),
    [
        ("Paris", "Paris", False, True),
        ("paris", "Paris", False, False),
        (" paris. ", "Paris", True, True),
        ("a  b", "A b", True, True),
        ("7", "7", False, True),
        (None, None, False, False),
        (None, "x", False, False),
        ("", "", False, True),
    ],
)
async def test_a_prediction_is_compared_with_its_target(
    prediction: Any, target: Any, normalize: bool, correct: bool
) -> None:
    result = await judge([{"p": prediction, "t": target}], normalize=normalize)
    assert result.outputs["rows"].rows[0]["correct"] is correct  # type: ignore[union-attr]


async def test_numbers_equal_their_text() -> None:
    manifest_rows = [{"p": "7", "t": 7}]
    result = await judge(manifest_rows)
    assert result.outputs["metrics"].values == {"accuracy": 1.0, "count": 1}  # type: ignore[union-attr]


async def test_empty_rows_have_no_columns_and_no_accuracy() -> None:
    result = await judge([])
    assert result.outputs["metrics"].values == {"accuracy": None, "count": 0}  # type: ignore[union-attr]


async def test_a_missing_column_is_named_with_the_existing_ones() -> None:
    with pytest.raises(AttemptError) as caught:
        await judge([{"p": "x", "answer": "y"}])
    failure = caught.value.failure
    assert failure.kind == FailureKind.BAD_INPUT
    assert "'t'" in failure.message
    assert "answer" in failure.remedy
