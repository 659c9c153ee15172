"""``model.merge`` and ``llm.score``, in one process, since torch is slow to import."""

import math
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from conftest import adapters_of
from jobs import action, completions, job

from flowmesh_worker.engines.models.safetensors_header import tensor_shapes

pytestmark = [pytest.mark.slow, pytest.mark.model]

TRANSFORMERS = {"implementation": "transformers"}
CHOICES = [" fox", " jumps", " fox jumps"]
PRINTED = [chr(c) for c in range(33, 127)]
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def score(*rows: dict[str, Any], _adapter: str = "", **params: Any) -> dict[str, Any]:
    own = {"adapter": _adapter} if _adapter else {}
    return {"rows": list(rows), "params": params, **own}


def scoring(model: Any, method: str, *batches: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    for batch in batches:
        for one in batch:
            one["params"]["method"] = method
    signature = {**TRANSFORMERS, "method": method}
    name = "flowmesh_worker.engines.llm.score:LlmScore"
    return job(model, *batches, engine=name, signature=signature, **more)


def merging(model: Any, *adapters: Path) -> dict[str, Any]:
    name = "flowmesh_worker.engines.models.merging:ModelMerge"
    return job(model, [{"adapter": str(a)} for a in adapters], engine=name)


@pytest.fixture(scope="module")
def made(tiny_model: Path) -> dict[str, Path]:
    return adapters_of(
        tiny_model,
        half="bfloat16",
        tuned={"use_dora": True, "seed": 4},
        judge={"task_type": "SEQ_CLS", "seed": 5},
    )


@pytest.fixture(scope="module")
def answers(tiny_model: Path, made: dict[str, Path], drive: Any) -> list[dict[str, Any]]:
    tuned, judge = made["tuned"], made["judge"]
    texts = [{"p": "the fox", "c": f" jumps {i}"} for i in range(4)]
    both = {"prompt": "{{ p }}", "completion": "{{ c }}"}
    greedy = action("the fox", "a dog", temperature=0)
    chain = [{"p": "the", "c": CHOICES}, {"p": "the fox", "c": CHOICES}]
    asked = [{"p": f"the fox {i}"} for i in range(12)]
    jobs = [
        merging(tiny_model, tuned, tuned, judge),
        merging(made["half"], tuned),
        job("FOLDER/0/0-0-out/model", [greedy], signature=TRANSFORMERS),
        job(
            tiny_model,
            [{**greedy, "adapter": str(tuned)}],
            [action(*(r["p"] for r in asked), temperature=0, maxTokens=1)],
            signature=TRANSFORMERS,
        ),
        scoring(
            tiny_model,
            "reward",
            [score(*texts, _adapter=str(judge), **both), score(*texts, **both)],
            mixed=["adapter"],
        ),
        scoring(
            "FOLDER/0/0-2-out/model",
            "reward",
            [score(*texts, **both)],
            [score(texts[2], **both)],
            [score(texts[2], text="{{ p }}{{ c }}<|end|>")],
            [score(texts[2])],
        ),
        scoring(
            tiny_model,
            "logprob",
            [score(*chain, prompt="{{ p }}", choices="c")],
            [score(chain[0], prompt="{{ p }} ", choices="c", normalize="bytes")],
            [score({"p": "the", "c": " fox jumps"}, normalize="tokens", **both)],
            [score({"p": "the", "c": "x"}, prompt="{{ p }}", choices="c")],
            [score(*({**r, "c": PRINTED} for r in asked), prompt="{{ p }}", choices="c")],
        ),
        scoring(tiny_model, "reward"),
        scoring(
            tiny_model,
            "judge",
            [score(*asked, prompt="{{ p }}", pattern="([a-z])", labels=list(LETTERS))],
            [score(*asked, prompt="{{ p }}", pattern="(never)", maxTokens=4)],
        ),
    ]
    return list(drive({"jobs": jobs})["jobs"])


def test_a_repeated_merge_gives_the_same_bytes_and_contains_no_local_path(
    answers: list[dict[str, Any]], tiny_model: Path
) -> None:
    one, again, _ = (Path(a["model"]) for a in answers[0]["batches"][0])
    names = sorted(f.name for f in one.iterdir())
    assert names == sorted(f.name for f in tiny_model.iterdir())
    for name in names:
        content = (one / name).read_bytes()
        assert content == (again / name).read_bytes()
        assert b"/tmp" not in content
        assert str(tiny_model.parent).encode() not in content


def test_a_merged_model_keeps_its_dtype_and_answers_as_with_the_adapter(
    answers: list[dict[str, Any]], tiny_model: Path
) -> None:
    [[half]] = answers[1]["batches"]
    weights = Path(half["model"]) / "model.safetensors"
    assert b'"dtype":"BF16"' in weights.read_bytes()[:4096]
    assert b'"dtype":"F32"' not in weights.read_bytes()[:4096]
    assert tensor_shapes(Path(half["model"])) == tensor_shapes(tiny_model)
    assert completions(answers[2]["batches"][0]) == completions(answers[3]["batches"][0])


def test_a_merged_reward_adapter_scores_as_the_adapter_does(answers: list[dict[str, Any]]) -> None:
    adapted, plain = answers[4]["batches"][0]
    [merged] = answers[5]["batches"][0]
    expected = [r["score"] for r in adapted["rows"]]
    assert len(set(expected)) == 4
    assert [r["score"] for r in merged["rows"]] == pytest.approx(expected, abs=1e-5)
    assert merged["metrics"] == {"mean": pytest.approx(sum(expected) / 4, abs=1e-5), "count": 4}
    assert plain["kind"] == "bad-input"
    assert "has a head" in plain["message"]


def test_a_reward_depends_only_on_its_own_text_which_ends_as_in_training(
    answers: list[dict[str, Any]],
) -> None:
    [many], [alone], [whole], [nothing] = answers[5]["batches"]
    assert many["rows"][2]["score"] == alone["rows"][0]["score"] == whole["rows"][0]["score"]
    assert many["rows"][2]["tokens"] == whole["rows"][0]["tokens"]
    assert "takes one of text, prompt (with completion) and messages" in nothing["message"]


def test_log_probabilities_obey_the_chain_rule(answers: list[dict[str, Any]]) -> None:
    [choices], [spaced], [mean], [no_list] = answers[6]["batches"][:4]
    (fox, _, both), (_, jumps, _) = (r["score"] for r in choices["rows"])
    assert both == pytest.approx(fox + jumps, abs=1e-4)
    assert all(x < 0 for x in (fox, jumps, both))
    assert choices["schema"]["score"] == "list<float>"
    tokens = choices["rows"][0]["tokens"]
    assert mean["rows"][0]["score"] == pytest.approx(both / tokens[2], abs=1e-6)
    assert choices["metrics"] == {"count": 2}
    assert "has no list of texts in 'c'" in no_list["message"]
    assert len(spaced["rows"][0]["score"]) == 3


def test_the_most_probable_choice_is_the_greedy_one(answers: list[dict[str, Any]]) -> None:
    drawn = completions(answers[3]["batches"][1])
    [weighed] = answers[6]["batches"][4]
    best = [PRINTED[r["score"].index(max(r["score"]))] for r in weighed["rows"]]
    among = [(b, d) for b, d in zip(best, drawn, strict=True) if d in PRINTED]
    assert among, "choose prompts after which this model prints something"
    assert all(b == d for b, d in among)


def test_a_model_without_a_head_is_not_a_reward_model(answers: list[dict[str, Any]]) -> None:
    assert "no head that scores a sequence" in answers[7]["load"]["message"]


def test_verdicts_are_counted_and_an_answer_without_one_is_null(
    answers: list[dict[str, Any]],
) -> None:
    [said], [silent] = answers[8]["batches"]
    counts = said["counts"]
    assert counts["rows"] == 12
    assert counts["unparsed"] + sum(counts[f"label.{x}"] for x in LETTERS) == 12
    assert counts["unparsed"] < 12
    assert math.isclose(sum(said["metrics"][f"share.{x}"] for x in LETTERS), 1.0)
    assert silent["counts"]["unparsed"] == 12
    assert {r["score"] for r in silent["rows"]} == {None}
    assert silent["metrics"] == {"mean": None, "count": 0}
    assert all(r["verdict"] for r in said["rows"])
