"""The engine ``eval.exact-match``: the share of predictions that equal their targets."""

import string
from typing import Any

from flowmesh_core.dataset import ColumnType, Schema
from flowmesh_worker.engine_api import (
    Metrics,
    Progress,
    Result,
    Rows,
    Usage,
    Work,
)
from flowmesh_worker.engines.engine_base import EngineBase
from flowmesh_worker.engines.eval.scorer import require_columns

_STRIPPED = string.punctuation + string.whitespace
CORRECT = "correct"


class ExactMatch(EngineBase):
    """The engine ``eval.exact-match``."""

    capacity = 4

    async def run(self, work: Work, progress: Progress) -> Result:
        """Compares prediction and target in every row."""
        given = work.dataset("rows")
        prediction, target = str(work.params["prediction"]), str(work.params["target"])
        if given.manifest.row_count:  # a data set without rows may have no columns
            require_columns(given.manifest.schema, prediction, target)
        normalize = bool(work.params.get("normalize"))
        rows = given.rows()
        for row in rows:
            row[CORRECT] = same(row[prediction], row[target], normalize=normalize)
        correct = sum(row[CORRECT] for row in rows)
        kinds = given.manifest.schema.types() | {CORRECT: ColumnType.BOOL}
        return Result(
            {"metrics": Metrics(scores(correct, len(rows))), "rows": Rows(rows, Schema.of(kinds))},
            Usage(units=len(rows)),
        )


def same(prediction: Any, target: Any, *, normalize: bool) -> bool:
    """Whether two values are equal; numbers equal their text, null equals nothing."""
    if prediction is None or target is None:
        return False
    if prediction == target and isinstance(prediction, bool) == isinstance(target, bool):
        return True
    a, b = _text(prediction), _text(target)
    if normalize:
        a, b = (" ".join(t.casefold().strip(_STRIPPED).split()) for t in (a, b))
    return a == b


def scores(correct: int, count: int) -> dict[str, Any]:
    """Returns accuracy and row count, from which the accuracy of several chunks is computed.

    Without rows the accuracy is null.
    """
    return {"accuracy": correct / count if count else None, "count": count}


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value) if isinstance(value, float) else str(value)
