"""The engine ``eval.multiple-choice``: the accuracy of answers to multiple-choice questions."""

from collections.abc import Mapping, Sequence
from typing import Any

from flowmesh_core.dataset import ColumnType, Schema
from flowmesh_worker.engine_api import DatasetInput, Rows
from flowmesh_worker.engines.errors import bad_input
from flowmesh_worker.engines.eval.choice_text import LETTERS, read_choice
from flowmesh_worker.engines.eval.intervals import wilson
from flowmesh_worker.engines.eval.scorer import Scorer, require_columns

PREDICTED, CORRECT = "predicted", "correct"
_ADDED = {PREDICTED: ColumnType.STRING, CORRECT: ColumnType.BOOL}
_SHORT = 60


class MultipleChoice(Scorer):
    """The engine ``eval.multiple-choice``: the most probable choice, or the one in a completion."""

    def score(self, params: Mapping[str, Any], given: DatasetInput) -> tuple[dict[str, Any], Rows]:
        """Scores every row; see the contract."""
        source = str(params.get("logprobs") or params.get("completion"))
        if given.manifest.row_count:
            wanted = (source, str(params["choices"]), str(params["answer"]))
            require_columns(given.manifest.schema, *wanted)
        rows = given.rows()
        correct = unparsed = 0
        for number, row in enumerate(rows, 1):
            choices = _choices(row[str(params["choices"])], str(params["choices"]), number)
            right = _answer(row, params, choices, number)
            chosen = _chosen(row, params, choices, number)
            row[PREDICTED] = None if chosen is None else choices[chosen]
            row[CORRECT] = chosen == right
            correct += row[CORRECT]
            unparsed += chosen is None
        share = correct / len(rows) if rows else None
        low, high = wilson(share or 0.0, len(rows), float(params["confidence"]))
        metrics = {
            "accuracy": share,
            "accuracy_low": low,
            "accuracy_high": high,
            "count": len(rows),
            "unparsed": unparsed,
        }
        return metrics, Rows(rows, Schema.of(given.manifest.schema.types() | _ADDED))


def _choices(value: Any, column: str, number: int) -> Sequence[str]:
    if not isinstance(value, list) or not all(isinstance(c, str) for c in value):
        raise bad_input(
            f"row {number}: column {column!r} has {_shown(value)}: expected a list of texts",
            "give every question its choices, as in [one, other]",
        )
    if len(set(value)) != len(value) or not 1 < len(value) <= len(LETTERS):
        raise bad_input(
            f"row {number}: column {column!r} has {_shown(value)}",
            f"a question has 2 to {len(LETTERS)} choices, all different",
        )
    return value


def _answer(row: Mapping[str, Any], params: Mapping[str, Any], choices: Any, number: int) -> int:
    column, kind = str(params["answer"]), str(params["answerIs"])
    value = row[column]
    found: int | None = None
    if kind == "index" and type(value) is int and 0 <= value < len(choices):
        found = value
    elif kind == "letter" and isinstance(value, str):
        letter = value.strip().upper()
        found = LETTERS.index(letter) if len(letter) == 1 and letter in LETTERS else None
        found = None if found is not None and found >= len(choices) else found
    elif kind == "text" and value in choices:
        found = choices.index(value)
    if found is None:
        raise bad_input(
            f"row {number}: column {column!r} has {_shown(value)}: expected the {kind} of one of"
            f" its {len(choices)} choices",
            "correct the row, or with.answerIs: index (from 0), letter (from A) or text",
        )
    return found


def _chosen(
    row: Mapping[str, Any], params: Mapping[str, Any], choices: Sequence[str], number: int
) -> int | None:
    if params.get("logprobs") is None:
        completion = row[str(params["completion"])]
        return read_choice(completion, choices) if isinstance(completion, str) else None
    column = str(params["logprobs"])
    scores = row[column]
    if not isinstance(scores, list) or not all(_is_number(s) for s in scores):
        raise bad_input(
            f"row {number}: column {column!r} has {_shown(scores)}: expected a list of numbers",
            "llm.score with choices makes such a column",
        )
    if len(scores) != len(choices):
        raise bad_input(
            f"row {number}: column {column!r} has {len(scores)} numbers for {len(choices)} choices",
            "score the same choices, in the same order",
        )
    if params.get("perCharacter"):
        scores = [s / max(1, len(c)) for s, c in zip(scores, choices, strict=True)]
    return max(range(len(scores)), key=scores.__getitem__)  # the first of equals


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHORT else text[:_SHORT] + "…"
