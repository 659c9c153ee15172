"""``llm.generate`` on transformers, and ``llm.embed``: the same guarantees without vLLM."""

import math
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from jobs import PROMPTS, action, completions, job, mixed

pytestmark = [pytest.mark.slow, pytest.mark.model]

TRANSFORMERS = {"implementation": "transformers"}


@pytest.fixture(scope="module")
def driven(tiny_model: Path, tiny_adapter: Path, drive: Any) -> list[dict[str, Any]]:
    """Runs three engines in one process: two that generate, one that embeds."""
    generating = job(
        tiny_model,
        mixed(PROMPTS),
        *[[one] for one in mixed(PROMPTS)],
        [action("fox", "dog", "fox", samples=2, temperature=0.9)],
        [
            action("good", temperature=0.9),
            action("z", jsonSchema={"type": "object"}),
            action("long", maxTokens=400, _cancel_after_tokens=16),
            action("chat", messages=[{"role": "user", "content": "{{ p }}"}]),
            action("good", temperature=0.9, _adapter=str(tiny_adapter)),
            action("good", temperature=0.9),
        ],
        [action("fox", temperature=0.9, maxTokens=200)],
        [action("fox", temperature=0.9, maxTokens=200, stop=["ow"])],
        signature=TRANSFORMERS,
    )
    free = {**TRANSFORMERS, "batchInvariant": False}
    padded = job(tiny_model, mixed(PROMPTS), [mixed(PROMPTS)[3]], signature=free)
    embedding = job(
        tiny_model,
        [
            embed("the fox", "a lazy dog", "the fox", column="t"),
            embed("the fox", text="{{ t }}", output="v", normalize=False),
            embed("the fox", column="u"),
        ],
        engine="flowmesh_worker.engines.llm.embed:LlmEmbed",
        signature=TRANSFORMERS,
    )
    return list(drive({"jobs": [generating, padded, embedding]})["jobs"])


def embed(*texts: str, **params: Any) -> dict[str, Any]:
    return {"rows": [{"t": t} for t in texts], "params": params}


@pytest.fixture(scope="module")
def answers(driven: list[dict[str, Any]]) -> dict[str, Any]:
    return driven[0]


def test_a_batch_gives_the_same_results_as_each_request_alone(answers: dict[str, Any]) -> None:
    together = completions(answers["batches"][0])
    assert len(set(together)) == 24
    assert together == [completions(b)[0] for b in answers["batches"][1:25]]


def test_samples_follow_their_rows_and_equal_rows_are_drawn_once(answers: dict[str, Any]) -> None:
    [[answer]] = answers["batches"][25:26]
    rows = answer["rows"]
    assert [(r["p"], r["sample"]) for r in rows] == [
        (p, j) for p in ("fox", "dog", "fox") for j in range(2)
    ]
    assert completions([answer])[:2] == completions([answer])[4:]
    assert answer["usage"][2] == 4 * 16


def test_an_unsupported_request_is_refused_and_affects_no_other(answers: dict[str, Any]) -> None:
    good, schema, cancelled, chat, _, again = answers["batches"][26]
    assert schema["kind"] == "bad-input"
    assert "set it to vllm" in schema["remedy"]
    assert cancelled == {"kind": "cancelled"}
    assert len(completions([chat])) == 1
    assert completions([good]) == completions([again])


def test_an_adapter_changes_only_its_own_requests(answers: dict[str, Any]) -> None:
    good, *_, adapted, again = answers["batches"][26]
    assert completions([adapted]) != completions([good])
    assert completions([again]) == completions([good])


def test_a_stop_string_cuts_the_same_text_before_it(answers: dict[str, Any]) -> None:
    [whole], [cut] = answers["batches"][27:29]
    full, short = whole["rows"][0]["completion"], cut["rows"][0]
    assert "ow" in full, "choose a stop string that this model says"
    assert short["completion"] == full[: full.index("ow")]
    assert short["finish_reason"] == "stop"


def test_padded_batches_draw_from_each_requests_own_seed(driven: list[dict[str, Any]]) -> None:
    together, [alone] = driven[1]["batches"]
    assert len(completions(together)) == 24
    assert completions([alone]) == completions([together[3]])


def test_vectors_have_unit_length_and_depend_only_on_their_own_text(
    driven: list[dict[str, Any]],
) -> None:
    [many, raw, missing] = driven[2]["batches"][0]
    fox, dog, again = (r["embedding"] for r in many["rows"])
    assert fox == again != dog
    assert math.isclose(math.hypot(*fox), 1.0, rel_tol=1e-6)
    assert many["schema"]["embedding"] == "list<float>"
    length = math.hypot(*raw["rows"][0]["v"])
    assert [x / length for x in raw["rows"][0]["v"]] == pytest.approx(fox, abs=1e-6)
    assert missing["kind"] == "bad-input"
    assert "no column 'u'" in missing["message"]
