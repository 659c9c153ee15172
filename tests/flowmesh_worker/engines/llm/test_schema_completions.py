"""``llm.generate`` checks completions against the step's JSON schema, on any backend."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from flowmesh_core.errors import AttemptError, FailureKind
from flowmesh_store.datasets.chunks import as_single_chunk
from flowmesh_worker.engine_api import DatasetInput, Metrics, Result, Rows, Work
from flowmesh_worker.engines.llm.generate import LlmGenerate
from flowmesh_worker.engines.llm.requests import Completion, Request
from flowmesh_worker.engines.llm.score import LlmScore
from flowmesh_worker.engines.models.model_facts import ModelFacts
from flowmesh_worker.engines.tokens import Tokenizing


class Letters:
    """A tokenizer with one token for each letter."""

    eos_token_id = None

    def __call__(self, text: str, **_: Any) -> dict[str, list[int]]:
        return {"input_ids": [ord(c) for c in text]}

    def encode(self, text: str, **_: Any) -> list[int]:
        return [ord(c) for c in text]


class Echo:
    """A backend that returns the prompt; a final ``…`` marks a completion that was cut."""

    context_length = 1000
    tokenizer = Letters()

    def __init__(self) -> None:
        self.asked = 0

    async def complete(self, request: Request, grew: Callable[[int], None]) -> Completion:
        self.asked += 1
        text = "".join(map(chr, request.token_ids))
        cut = text.endswith("…")
        return Completion(text.removesuffix("…"), "length" if cut else "stop", len(text))

    async def close(self) -> None:
        pass


def work(texts: Sequence[str], folder: Path, **params: Any) -> Work:
    manifest, blobs = as_single_chunk([{"t": t} for t in texts])
    files = tuple(blobs[c.blob] for c in manifest.chunks)
    return Work(
        action_id="a",
        attempt_id="a",
        params={"prompt": "{{ t }}", **params},
        fields={},
        inputs={"rows": DatasetInput(manifest, files)},
        out_dir=folder,
    )


def run(engine: Any, given: Work) -> Result:
    result: Result = asyncio.run(engine.run(given, lambda *_: None))
    return result


@pytest.fixture
def generate() -> LlmGenerate:
    engine, backend = LlmGenerate(), Echo()
    engine._backend = backend
    engine._tokenizing = Tokenizing(backend.tokenizer, backend.context_length)
    return engine


SHORT = {"type": "string", "pattern": "^[a-z]+$", "maxLength": 3}
UNHELD = [
    ({"type": "integer", "not": {"const": 3}}, "3", "should not be valid under"),
    ({"allOf": [{"type": "integer"}, {"minimum": 5}]}, "4", "less than the minimum"),
    (SHORT, '"abcd"', "is too long"),
    ({"type": "object"}, '{"a": 1…', "it is not JSON"),
]


@pytest.mark.parametrize(("schema", "text", "said"), UNHELD)
def test_a_completion_that_violates_its_schema_fails_its_action(
    generate: LlmGenerate, tmp_path: Path, schema: Any, text: str, said: str
) -> None:
    with pytest.raises(AttemptError) as caught:
        run(generate, work(["5", text], tmp_path, jsonSchema=schema, samples=2))
    failure = caught.value.failure
    assert failure.kind is FailureKind.BAD_INPUT
    assert failure.message.startswith("row ")
    assert "does not satisfy with.jsonSchema" in failure.message
    assert failure.remedy


def test_the_failure_names_row_sample_and_location_and_shows_the_text(
    generate: LlmGenerate, tmp_path: Path
) -> None:
    with pytest.raises(AttemptError) as caught:
        run(generate, work(['"ab"', '"abc"', '"abcd"'], tmp_path, jsonSchema=SHORT))
    assert caught.value.failure.message == (
        "row 3 of this chunk, sample 0: the completion does not satisfy with.jsonSchema:"
        " at $: 'abcd' is too long"
    )
    assert caught.value.failure.detail == '"abcd"'
    assert "not every keyword constrains" in caught.value.failure.remedy


def test_a_truncated_text_is_reported_with_its_remedy(
    generate: LlmGenerate, tmp_path: Path
) -> None:
    with pytest.raises(AttemptError) as caught:
        run(generate, work(['{"a": …'], tmp_path, jsonSchema={"type": "object"}))
    assert "it was cut at with.maxTokens" in caught.value.failure.message
    assert caught.value.failure.remedy == "raise with.maxTokens"


def test_a_completion_that_satisfies_its_schema_is_returned_unchanged(
    generate: LlmGenerate, tmp_path: Path
) -> None:
    texts = ['"ab"', ' "abc"\n', '"x"…']
    result = run(generate, work(texts, tmp_path, jsonSchema=SHORT))
    rows = result.outputs["rows"]
    assert isinstance(rows, Rows)
    assert [(r["completion"], r["finish_reason"]) for r in rows.rows] == [
        ('"ab"', "stop"),
        (' "abc"\n', "stop"),
        ('"x"', "length"),
    ]


def test_without_a_schema_any_text_is_a_completion(generate: LlmGenerate, tmp_path: Path) -> None:
    rows = run(generate, work(["3", "no JSON…"], tmp_path)).outputs["rows"]
    assert isinstance(rows, Rows)
    assert [r["completion"] for r in rows.rows] == ["3", "no JSON"]


def test_an_invalid_schema_is_refused_before_anything_is_generated(
    generate: LlmGenerate, tmp_path: Path
) -> None:
    with pytest.raises(AttemptError, match=r"with\.jsonSchema cannot be used"):
        run(generate, work(["1"], tmp_path, jsonSchema={"maxLength": "3"}))
    assert isinstance(generate._backend, Echo)
    assert generate._backend.asked == 0


def judging(tmp_path: Path) -> LlmScore:
    """An engine whose judge answers with the prompt."""
    engine, judge = LlmScore(), Echo()
    engine._facts = ModelFacts(tmp_path, "float32", judge.context_length, 0, 0)
    engine._judge = judge
    engine._tokenizing = Tokenizing(judge.tokenizer, judge.context_length)
    return engine


@pytest.mark.parametrize(
    ("answers", "params", "metrics"),
    [
        (["so", "so"], {}, {"mean": None, "count": 0}),
        (["so", "3"], {}, {"mean": 3.0, "count": 1}),
        (["so"], {"labels": ["a", "b"]}, {"share.a": None, "share.b": None, "count": 0}),
        (["so", "b"], {"labels": ["a", "b"]}, {"share.a": 0.0, "share.b": 1.0, "count": 1}),
    ],
)
def test_answers_without_a_verdict_have_neither_a_mean_nor_shares(
    tmp_path: Path, answers: list[str], params: dict[str, Any], metrics: dict[str, Any]
) -> None:
    outputs = run(judging(tmp_path), work(answers, tmp_path, method="judge", **params)).outputs
    assert isinstance(outputs["metrics"], Metrics)
    assert outputs["metrics"].values == metrics


def test_a_judges_answer_that_violates_its_schema_is_not_a_verdict(tmp_path: Path) -> None:
    engine = judging(tmp_path)
    schema = {
        "type": "object",
        "properties": {"score": {"type": "integer", "allOf": [{"maximum": 5}]}},
        "required": ["score"],
    }
    answers = ['{"score": 5}', '{"score": 9}', '{"score": 4, "why": "…']
    params = {"method": "judge", "jsonSchema": schema}
    outputs = run(engine, work(answers, tmp_path, **params)).outputs
    rows, means, counts = outputs["rows"], outputs["metrics"], outputs["counts"]
    assert isinstance(rows, Rows)
    assert isinstance(means, Metrics)
    assert isinstance(counts, Metrics)
    assert [r["score"] for r in rows.rows] == [5.0, None, None]
    assert [r["verdict"] for r in rows.rows] == [a.removesuffix("…") for a in answers]
    assert (means.values["mean"], counts.values["unparsed"]) == (5.0, 2)
