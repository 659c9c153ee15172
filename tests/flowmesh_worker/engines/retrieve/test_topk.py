"""`retrieve.topk`, the engine alone."""

from typing import Any

import numpy as np
import pytest
from tests.flowmesh_worker.engines.eval import scoring

from flowmesh_core.errors import AttemptError
from flowmesh_worker.engines.retrieve.topk import TopK
from flowmesh_worker.engines.retrieve.vectors import read_vectors

NAME = "retrieve.topk"
FACTS = [
    {"text": "oaks grow slowly", "embedding": [1.0, 0.0], "tag": {"n": 1}},
    {"text": "elms are tall", "embedding": [0.0, 1.0], "tag": None},
    {"text": None, "embedding": [-1.0, 0.0], "tag": None},
]


async def ask(
    queries: list[dict[str, Any]], corpus: list[dict[str, Any]], **params: Any
) -> list[dict[str, Any]]:
    done = await scoring.run(TopK(), NAME, {"rows": queries, "corpus": corpus}, **params)
    return list(done["rows"].rows)


async def refused(
    queries: list[dict[str, Any]], corpus: list[dict[str, Any]], **params: Any
) -> str:
    failure = await scoring.refused(
        TopK(), NAME, {"rows": queries, "corpus": corpus}, **{"k": 1, **params}
    )
    return f"{failure.message}; {failure.remedy}"


async def test_found_rows_are_returned_with_their_columns_and_as_one_text() -> None:
    queries = [{"q": "x", "embedding": [2.0, 0.0]}, {"q": "y", "embedding": [0.0, 0.5]}]
    options = {"columns": ["tag"], "context": "context", "join": "text", "separator": " | "}
    first, second = await ask(queries, FACTS, k=2, **options)
    assert first == {
        "q": "x",
        "embedding": [2.0, 0.0],
        "found": [{"row": 0, "score": 1.0, "tag": {"n": 1}}, {"row": 1, "score": 0.0, "tag": None}],
        "context": "oaks grow slowly | elms are tall",
    }
    assert [f["row"] for f in second["found"]] == [1, 0]


async def test_integers_and_json_lists_are_vectors_too() -> None:
    queries = [{"v": [1, 0]}]
    corpus = [{"w": [0, 2]}, {"w": [3, 0]}]
    for given in (corpus, [*corpus, {"w": [1, 2]}]):
        (row,) = await ask(queries, given, vector="v", corpusVector="w", metric="dot", k=1)
        assert row["found"] == [{"row": 1, "score": 3.0}]


async def test_one_engine_serves_several_corpora_in_turn_without_mixing_them() -> None:
    engine, queries = TopK(), [{"embedding": [1.0, 0.0]}]
    other = [{"embedding": [0.0, 1.0]}, {"embedding": [1.0, 0.0]}]
    for corpus, row in ((FACTS, 0), (other, 1), (FACTS, 0)):
        done = await scoring.run(engine, NAME, {"rows": queries, "corpus": corpus}, k=1)
        assert done["rows"].rows[0]["found"][0]["row"] == row


async def test_an_empty_list_of_queries_finds_nothing() -> None:
    assert await ask([], FACTS, k=1, context="context", join="text") == []


@pytest.mark.parametrize(
    ("queries", "corpus", "params", "said"),
    [
        ([{"embedding": [1.0]}], [], {}, "input 'corpus' has no rows"),
        ([{"embedding": [1.0, 0.0]}], FACTS, {"k": 4}, "with.k is 4, and input 'corpus' has 3"),
        ([{"v": [1.0, 0.0]}], FACTS, {}, "input 'rows' has no column 'embedding'"),
        ([{"embedding": [1.0, 0.0]}], FACTS, {"corpusVector": "v"}, "'corpus' has no column 'v'"),
        ([{"embedding": [1.0, 0.0]}], FACTS, {"columns": ["title"]}, "no column 'title'"),
        ([{"embedding": [1.0, 0.0]}], FACTS, {"join": "text"}, "only one of context and join"),
        ([{"embedding": [1.0]}], FACTS, {}, "have 1 numbers, those of 'corpus' have 2"),
        (
            [{"embedding": [0.0, 0.0]}],
            FACTS,
            {},
            "input 'rows', row 1: column 'embedding' has leng",
        ),
        (
            [{"embedding": [1.0]}],
            [{"embedding": [1.0]}, {"embedding": [1.0, 2.0]}],
            {},
            "input 'corpus', row 2: column 'embedding' has 2 numbers, and row 1 has 1",
        ),
        (
            [{"embedding": [1.0]}],
            [{"embedding": [1.0]}, {"embedding": None}],
            {},
            "input 'corpus', row 2: column 'embedding' has no vector",
        ),
        (
            [{"embedding": [1.0]}],
            [{"embedding": "x"}],
            {},
            "row 1: column 'embedding' is not a list",
        ),
        ([{"embedding": [1.0]}], [{"embedding": [1e200]}], {}, "a number beyond 1e+100"),
        (
            [{"embedding": [1.0]}],
            [{"embedding": [1.0], "score": 1}],
            {"columns": ["score"]},
            "with.columns names 'score'",
        ),
    ],
)
async def test_unsearchable_rows_are_refused_with_their_location(
    queries: list[dict[str, Any]], corpus: list[dict[str, Any]], params: dict[str, Any], said: str
) -> None:
    assert said in await refused(queries, corpus, **params)


def test_nan_values_in_a_file_are_refused() -> None:
    import pyarrow as pa

    class Foreign:
        manifest = scoring.dataset([{"v": [1.0]}]).manifest

        @staticmethod
        def table() -> Any:
            return pa.table({"v": pa.array([[1.0], [np.nan]])})

    with pytest.raises(AttemptError) as caught:
        read_vectors(Foreign(), "v", "corpus")  # type: ignore[arg-type]
    assert "row 2: column 'v' has a number that is not finite" in caught.value.failure.message
