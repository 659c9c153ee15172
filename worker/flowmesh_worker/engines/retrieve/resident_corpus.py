"""A corpus that a replica of a service keeps loaded, and the searches of its calls.

A search finds what ``retrieve.topk`` finds in a workflow: the same rows with the same scores.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from flowmesh_core.catalog.builtin.retrieve import TOPK
from flowmesh_core.errors import AttemptError
from flowmesh_core.identity.coerce import default_of
from flowmesh_core.openai.errors import OpenAiError, invalid_value
from flowmesh_core.openai.topk_request import TOPK_PARAMETERS, check_topk
from flowmesh_core.stages.stage_calls import FOUND, ROWS
from flowmesh_worker.engine_api import DatasetInput, ServingAnswer
from flowmesh_worker.engines.errors import bad_input
from flowmesh_worker.engines.retrieve.nearest import nearest
from flowmesh_worker.engines.retrieve.vectors import LENGTH_MAX, read_vectors

_DEFAULTS = {p.name: default_of(p) for p in TOPK.params if p.name in TOPK_PARAMETERS}
_OK = 200


class ResidentCorpus:
    """A corpus and its columns of vectors."""

    def __init__(self, corpus: DatasetInput) -> None:
        """Reads the corpus, with the column of vectors that searches use by default.

        Raises:
            AttemptError: bad input; it has no rows, or wrong vectors in that column.
        """
        if not corpus.manifest.row_count:
            raise bad_input("input 'corpus' has no rows", "publish one that has, and apply again")
        self._corpus = corpus
        self._table = corpus.table()
        self._vectors: dict[str, Any] = {}
        usual = str(_DEFAULTS["corpusVector"])
        if usual in corpus.manifest.schema.types():
            self._vectors[usual] = read_vectors(corpus, usual, "corpus")

    def answer(self, body: Mapping[str, Any]) -> ServingAnswer:
        """Answers a call: the nearest rows to one vector."""
        try:
            return ServingAnswer(_OK, msgspec.json.encode({FOUND: self._found(body)}))
        except OpenAiError as error:
            return ServingAnswer(error.status, msgspec.json.encode(error.body()))

    def _found(self, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        import numpy as np  # noqa: PLC0415 - comes with the worker's extras only

        from flowmesh_store.datasets import table_rows  # noqa: PLC0415 - pyarrow is heavy

        given = {name: value for name, value in body.items() if name != ROWS}
        check_topk(given)
        params = {**_DEFAULTS, **{n: v for n, v in given.items() if v is not None}}
        metric, vectors = str(params["metric"]), self._vectors_of(str(params["corpusVector"]))
        columns = self._known_columns(params["columns"])
        query = _vector(body.get(ROWS), str(params["vector"]))
        if len(query) != vectors.shape[1]:
            text = f"it has {len(query)} numbers, and the corpus's vectors have {vectors.shape[1]}:"
            raise invalid_value(ROWS, f"{text} embed both with one model.")
        if metric == "cosine":
            self._refuse_without_direction(query, vectors)
        k = min(int(params["k"]), len(vectors))
        (places,) = nearest(np.array([query], dtype=np.float64), vectors, k, metric)
        rows = table_rows(self._table.select(columns).take([i for i, _ in places]))
        scored = [{"row": i, "score": score} for i, score in places]
        return [one | row for one, row in zip(scored, rows, strict=True)] if columns else scored

    def _vectors_of(self, column: str) -> Any:
        if column not in self._vectors:
            if column not in self._corpus.manifest.schema.types():
                raise invalid_value("corpusVector", f"the corpus has no column '{column}'.")
            self._vectors[column] = _read(self._corpus, column)
        return self._vectors[column]

    def _known_columns(self, columns: Sequence[str]) -> list[str]:
        known = self._corpus.manifest.schema.types()
        for name in columns:
            if name not in known or name in ("row", "score"):
                shown = ", ".join(sorted(known)[:20])
                raise invalid_value("columns", f"the corpus has no '{name}'; it has {shown}.")
        return list(dict.fromkeys(columns))

    @staticmethod
    def _refuse_without_direction(query: Sequence[float], vectors: Any) -> None:
        import numpy as np  # noqa: PLC0415 - as above

        least = 1 / LENGTH_MAX
        if max(map(abs, query)) < least or (np.abs(vectors).max(axis=1) < least).any():
            text = "it, or a row of the corpus, has length 0, and so no cosine: use another metric."
            raise invalid_value(ROWS, text)


def _read(corpus: DatasetInput, column: str) -> Any:
    try:
        return read_vectors(corpus, column, "corpus")
    except AttemptError as error:
        raise invalid_value("corpusVector", f"{error.failure.message}.") from error


def _vector(value: Any, name: str) -> list[float]:
    """Returns the vector of a call: a list of numbers, or an object that has it under a name."""
    found = value.get(name) if isinstance(value, dict) else value
    if not isinstance(found, list) or not found:
        raise invalid_value(ROWS, f"expected an object with a list of numbers in '{name}'.")
    for number in found:
        is_number = isinstance(number, int | float) and not isinstance(number, bool)
        if not is_number or not math.isfinite(number) or abs(number) > LENGTH_MAX:
            raise invalid_value(ROWS, f"expected finite numbers up to {LENGTH_MAX:g}.")
    return [float(number) for number in found]
