"""The engine ``retrieve.topk``: the rows of a corpus that are nearest to every query."""

import asyncio
import importlib.util
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from flowmesh_core.dataset import ColumnType, Schema, dataset_digest
from flowmesh_core.stages.stage_calls import TOPK_PATH
from flowmesh_worker.engine_api import (
    DatasetInput,
    HostSettings,
    Progress,
    Result,
    Rows,
    ServingAnswer,
    ServingCall,
    TreeInput,
    Usage,
    Work,
)
from flowmesh_worker.engines.errors import bad_input, unplaceable
from flowmesh_worker.engines.eval.scorer import require_columns
from flowmesh_worker.engines.resident_dataset import resident_dataset
from flowmesh_worker.engines.retrieve.nearest import Found, nearest
from flowmesh_worker.engines.retrieve.resident_corpus import ResidentCorpus
from flowmesh_worker.engines.retrieve.vectors import read_vectors, refuse_without_direction

_OWN_KEYS = ("row", "score")
_CALLS_MAX = 8
"""Searches of a replica at once; each takes a thread."""


@dataclass(frozen=True, slots=True)
class _Corpus:
    """A corpus's vectors, cached for the next chunk of queries."""

    key: tuple[str, str]
    vectors: Any


class TopK:
    """The engine ``retrieve.topk``; it caches one corpus for many chunks of queries."""

    capacity = 4

    def __init__(self) -> None:
        self._corpus: _Corpus | None = None
        self._resident: ResidentCorpus | None = None
        self._reading = asyncio.Lock()

    async def load(self, components: Mapping[str, TreeInput], settings: HostSettings) -> None:
        """Checks that numpy is installed; a replica of a service reads its corpus too."""
        if importlib.util.find_spec("numpy") is None:
            raise unplaceable(
                "this worker has no numpy installed", "install one of the worker's extras"
            )
        if "corpus" in components:
            dataset = resident_dataset(components["corpus"])
            self._resident = await asyncio.to_thread(ResidentCorpus, dataset)

    async def run(self, work: Work, progress: Progress) -> Result:
        """Finds the nearest rows for every query of one action."""
        queries, corpus = work.dataset("rows"), work.dataset("corpus")
        _check_params(work.params, corpus)
        vectors = await self._vectors(corpus, str(work.params["corpusVector"]))
        rows = await asyncio.to_thread(_answer, work.params, queries, corpus, vectors)
        progress(len(rows), len(rows), "rows")
        kinds = queries.manifest.schema.types() | {str(work.params["output"]): ColumnType.JSON}
        if work.params.get("context") is not None:
            kinds[str(work.params["context"])] = ColumnType.STRING
        return Result({"rows": Rows(rows, Schema.of(kinds))}, Usage(units=len(rows)))

    async def close(self) -> None:
        """Frees the corpus."""
        self._corpus = self._resident = None

    def serves(self) -> tuple[tuple[str, ...], int]:
        """Returns that it answers searches, where it keeps a corpus. See ``Serves``."""
        return ((), 0) if self._resident is None else ((TOPK_PATH,), _CALLS_MAX)

    async def answer(self, call: ServingCall) -> ServingAnswer:
        """Answers a search. See ``Serves``."""
        if self._resident is None:
            raise RuntimeError("retrieve.topk was given a call without a corpus")
        return await asyncio.to_thread(self._resident.answer, call.body)

    async def stream(self, call: ServingCall) -> AsyncIterator[bytes | ServingAnswer]:
        """As :meth:`answer`. See ``Serves``."""
        yield await self.answer(call)

    async def _vectors(self, corpus: DatasetInput, column: str) -> Any:
        key = (dataset_digest(corpus.manifest), column)
        async with self._reading:
            if self._corpus is None or self._corpus.key != key:
                self._corpus = None
                vectors = await asyncio.to_thread(read_vectors, corpus, column, "corpus")
                self._corpus = _Corpus(key, vectors)
            return self._corpus.vectors


def _check_params(params: Mapping[str, Any], corpus: DatasetInput) -> None:
    count, k = corpus.manifest.row_count, int(params["k"])
    if not count:
        raise bad_input("input 'corpus' has no rows", "give it rows, or the step a `when`")
    if k > count:
        raise bad_input(f"with.k is {k}, and input 'corpus' has {count} rows", "lower with.k")
    if (params.get("context") is None) != (params.get("join") is None):
        raise bad_input(
            "with has only one of context and join",
            "context names the new column, join the corpus's column that its texts come from",
        )
    carried = [str(c) for c in params["columns"]]
    own = [c for c in carried if c in _OWN_KEYS]
    if own:
        raise bad_input(
            f"with.columns names {own[0]!r}, which is a reserved name of the results",
            "rename it in a step before, with data.sql for example",
        )
    joined = [] if params.get("join") is None else [str(params["join"])]
    require_columns(corpus.manifest.schema, *carried, *joined, port="corpus")


def _answer(
    params: Mapping[str, Any], queries: DatasetInput, corpus: DatasetInput, vectors: Any
) -> Sequence[Mapping[str, Any]]:
    rows = queries.rows()
    if not rows:
        return rows
    column, metric = str(params["vector"]), str(params["metric"])
    own = read_vectors(queries, column, "rows")
    if own.shape[1] != vectors.shape[1]:
        raise bad_input(
            f"the vectors of input 'rows' have {own.shape[1]} numbers, those of 'corpus' have"
            f" {vectors.shape[1]}",
            "embed both with one model",
        )
    if metric == "cosine":
        refuse_without_direction(own, column, "rows")
        refuse_without_direction(vectors, str(params["corpusVector"]), "corpus")
    found = nearest(own, vectors, int(params["k"]), metric)
    return list(_added(params, rows, corpus, found))


def _added(
    params: Mapping[str, Any],
    rows: Sequence[dict[str, Any]],
    corpus: DatasetInput,
    found: Iterator[Found],
) -> Iterator[dict[str, Any]]:
    """Yields the queries with their new columns."""
    from flowmesh_store.datasets import table_rows  # noqa: PLC0415 - pyarrow is heavy

    carried, join = [str(c) for c in params["columns"]], params.get("join")
    wanted = sorted({*carried, *([] if join is None else [str(join)])})
    corpus_rows = table_rows(corpus.table().select(wanted)) if wanted else []
    for row, places in zip(rows, found, strict=True):
        objects = [
            {"row": i, "score": score} | {c: corpus_rows[i][c] for c in carried}
            for i, score in places
        ]
        added = {str(params["output"]): objects}
        if join is None:
            yield row | added
            continue
        texts = [corpus_rows[i][str(join)] for i, _ in places]
        joined = str(params["separator"]).join("" if t is None else str(t) for t in texts)
        yield row | added | {str(params["context"]): joined}
