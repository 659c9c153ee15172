"""Columns that a step names and its rows lack: told before an engine loads."""

from typing import Any

import pytest

from flowmesh_core.catalog.builtin import contracts
from flowmesh_core.catalog.contract import EngineContract
from flowmesh_core.dataset import Manifest, Schema
from flowmesh_core.dataset.columns import ColumnType
from flowmesh_core.dataset.manifest import ChunkRef
from flowmesh_core.protocol.messages import FailureReport
from flowmesh_core.units import Digest
from flowmesh_worker.data.column_check import missing_column_failure
from flowmesh_worker.ipc.frames import HostInput

CONTRACTS: dict[str, EngineContract] = {c.name: c for c in contracts()}
D = Digest("0" * 64)


def judged(
    engine: str, params: dict[str, Any], *columns: str, count: int = 3
) -> FailureReport | None:
    chunks = (ChunkRef(D, D, count, 1),) if count else ()
    manifest = Manifest(Schema.of(dict.fromkeys(columns, ColumnType.STRING)), chunks)
    return missing_column_failure(
        CONTRACTS[engine], params, {"rows": HostInput("dataset", D, (), manifest)}
    )


CHAT = [{"role": "user", "content": "{{ question }} {{ hint }}"}]


@pytest.mark.parametrize(
    ("engine", "params", "place"),
    [
        ("llm.generate", {"prompt": "{{ hint }}"}, "prompt"),
        ("llm.generate", {"messages": CHAT}, "messages[0].content"),
        ("llm.embed", {"column": "hint"}, "column"),
        ("eval.exact-match", {"prediction": "question", "target": "hint"}, "target"),
        ("train.grpo", {"prompt": "{{ hint }}"}, "prompt"),
        (
            "train.grpo",
            {"reward_funcs": [{"name": "json-valid"}, {"name": "equals", "target": "hint"}]},
            "reward_funcs[1].target",
        ),
    ],
)
def test_a_missing_column_is_named_with_the_existing_ones(
    engine: str, params: dict[str, Any], place: str
) -> None:
    failure = judged(engine, params, "question", "answer")
    assert failure is not None
    assert failure.kind == "bad-input"
    assert failure.message == f"with.{place} names 'hint', and input 'rows' has no such column"
    assert failure.remedy == "its columns are answer, question"
    assert judged(engine, params, "question", "hint") is None


def test_a_column_of_texts_is_no_column_of_chats() -> None:
    failure = judged("llm.generate", {"messagesFrom": "question"}, "question")
    assert failure is not None
    assert failure.kind == "bad-input"
    assert failure.message == (
        "column 'question' holds strings; messagesFrom takes a list of {role, content}"
    )
    kinds = {"question": ColumnType.JSON}
    chunks = (ChunkRef(D, D, 3, 1),)
    rows = HostInput("dataset", D, (), Manifest(Schema.of(kinds), chunks))
    params = {"messagesFrom": "question"}
    assert missing_column_failure(CONTRACTS["llm.generate"], params, {"rows": rows}) is None


def test_empty_rows_require_no_columns() -> None:
    assert judged("llm.generate", {"prompt": "{{ hint }}"}, count=0) is None
    columns = {"prediction": "answer", "target": "hint"}  # the answer's engine never saw a hint
    assert judged("eval.exact-match", columns, "answer", count=0) is None


def test_the_columns_of_an_engine_that_does_not_read_by_row_are_not_checked() -> None:
    assert judged("data.sql", {"query": "select hint from rows"}, "question") is None
