"""The tool ``retrieve``: the rows of a data set that match words best, by BM25."""

import importlib.util
from collections.abc import Mapping
from typing import Any

from flowmesh_core.dataset import ColumnType
from flowmesh_worker.engine_api import DatasetInput
from flowmesh_worker.engines.agent.tools.shown_rows import shown_rows
from flowmesh_worker.engines.agent.tools.tool import CallSite, ToolError, schema_of
from flowmesh_worker.engines.errors import unplaceable

_K, _K_MAX = 3, 20
_CHARS_MAX = 1000
_WORD = r"(?u)\b\w+\b"


class RowIndex:
    """A BM25 index of a data set's rows by the words of their string columns.

    Scores are float32 sums in the order of the query's words; equal scores keep the rows' order.
    """

    def __init__(self, given: DatasetInput) -> None:
        """Reads and indexes the rows; blocks.

        Raises:
            AttemptError: unplaceable; the library is not installed.
        """
        if importlib.util.find_spec("bm25s") is None:
            raise unplaceable("this worker has no bm25s installed", "install a worker's extra")
        import bm25s  # noqa: PLC0415 - brings numpy and scipy

        types = given.manifest.schema.types()
        columns = [name for name, kind in types.items() if kind is ColumnType.STRING]
        self._rows = given.rows()
        self._words = bm25s.tokenize
        texts = ["\n".join(str(r[c]) for c in columns if r[c]) for r in self._rows]
        words = self._split(texts)
        self._known = {word for text in words for word in text}
        self._bm25 = bm25s.BM25()
        if self._known:
            self._bm25.index(words, show_progress=False)

    def search(self, query: str, k: int) -> list[dict[str, Any]]:
        """Returns at most ``k`` rows with a score above 0, best first."""
        import numpy as np  # noqa: PLC0415 - comes with bm25s

        wanted = [word for word in self._split([query])[0] if word in self._known]
        if not wanted:
            return []
        scores = self._bm25.get_scores(wanted)
        best = np.argsort(-scores, kind="stable")[:k]
        return [
            {"row": int(i), "score": round(float(scores[i]), 4), **self._rows[i]}
            for i in best
            if scores[i] > 0
        ]

    def _split(self, texts: list[str]) -> list[list[str]]:
        found: list[list[str]] = self._words(
            texts,
            token_pattern=_WORD,
            stopwords=None,
            return_ids=False,
            show_progress=False,
        )
        return found


class RetrieveTool:
    """The tool ``retrieve``."""

    name = "retrieve"

    def __init__(self, indexes: Mapping[str, RowIndex]) -> None:
        """Creates the tool; ``indexes`` are by the data sets' names."""
        self._indexes = indexes
        names = sorted(indexes)
        self.description = f"Finds the rows of {' or '.join(names)} that match words best."
        self.parameters = schema_of(
            {
                "input": {"type": "string", "enum": names},
                "query": {"type": "string", "description": "words", "maxLength": _CHARS_MAX},
                "k": {"type": "integer", "minimum": 1, "maximum": _K_MAX},
            },
            "k",
        )

    async def call(self, arguments: Mapping[str, Any], place: CallSite) -> str:
        """Returns the best rows as text."""
        query = arguments["query"]
        found = self._indexes[arguments["input"]].search(query, arguments.get("k", _K))
        if not found:
            raise ToolError(f"no row has a word of {query[:80]!r}")
        return shown_rows(found)
