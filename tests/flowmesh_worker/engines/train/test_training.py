"""``train.sft``, ``train.reward`` and ``train.dpo`` on a model of two layers.

They use two processes: the second must repeat the first's trainings byte for byte, and resume those
that were stopped.
"""

import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.model]

ENGINES = {"sft": "TrainSft", "reward": "TrainReward", "dpo": "TrainDpo"}
ROWS = [
    {"q": f"{a}+{b}", "good": str(a + b), "bad": str(a + b + 1)} for a in range(4) for b in range(5)
]
ANSWER = {"prompt": "Q: {{ q }}\nA:", "completion": " {{ good }}"}
PAIR = {
    "messages": [{"role": "user", "content": "{{ q }}"}],
    "chosen": "{{ good }}",
    "rejected": "{{ bad }}",
}
# Steps between two log entries, batches within a step and dropout all have to survive a stop.
SHARED = {
    "max_steps": 6,
    "learning_rate": 1e-3,
    "per_device_train_batch_size": 2,
    "gradient_accumulation_steps": 2,
    "logging_steps": 4,
    "test_size": 0.2,
    "eval_steps": 3,
}
PLAIN: dict[str, Any] = {}
# Asked to stop before it began, or by its first regular checkpoint, in the second epoch.
STOPPED: dict[bool, dict[str, Any]] = {
    True: {"stop": "first"},
    False: {"stop": "kept", "with": {"save_steps": 5}},
}
STOPPED_AT = {True: 1, False: 5}
KINDS = [(which, peft) for which in ENGINES for peft in (True, False)]


def host(which: str, model: Path, peft: bool, *actions: dict[str, Any], **more: Any) -> Any:
    return {
        "engine": f"flowmesh_worker.engines.train.{which}:{ENGINES[which]}",
        "uses": f"train.{which}",
        "model": str(model),
        "rows": ROWS,
        "with": {**SHARED, **(ANSWER if which == "sft" else PAIR), "use_peft": peft},
        "signature": {"use_peft": peft, "load_in_8bit": False, "dtype": "auto"},
        "actions": actions,
        **more,
    }


def one(**params: Any) -> dict[str, Any]:
    return {"with": params}


@pytest.fixture(scope="module")
def first(tiny_model: Path, train: Any) -> dict[Any, Any]:
    chat = [{"role": "user", "content": "{{ q }}"}, {"role": "assistant", "content": "{{ good }}"}]
    whole = {"prompt": None, "completion": None}
    still: dict[str, Any] = {
        "learning_rate": 0.0,
        "test_size": 0.0,
        "max_steps": 1,
        "logging_steps": 1,
    }
    still |= {"gradient_accumulation_steps": 1}
    few = {"rows": ROWS[:4]}
    extra: dict[Any, tuple[dict[str, Any], ...]] = {
        ("sft", False): (one(learning_rate=1e38),),
        ("sft", True): (
            PLAIN,
            one(seed=7),
            {"cancel_after": 2, "with": {"max_steps": 10_000}},
            {**few, "with": {**still, "per_device_train_batch_size": 4}},
            {**few, "with": {**still, "packing": True}},
            one(messages=chat, **whole),
            one(text="{{ q }}={{ good }}", max_length=6, **whole),
            one(max_length=4),
            {"with": {}, "rows": []},
            one(text="{{ q }}"),
            one(max_steps=0),
            one(num_train_epochs=0),
            one(lora_target_modules=["nope"]),
            {"with": {"test_size": 0.0}, "rows": [{**ROWS[0], "good": None}]},
        ),
    }
    hosts = [host(w, tiny_model, p, PLAIN, STOPPED[p], *extra.get((w, p), ())) for w, p in KINDS]
    tight = host("dpo", tiny_model, False, PLAIN, memory_mib=901)
    eight = host("sft", tiny_model, True, PLAIN)
    eight["signature"]["load_in_8bit"] = True
    names: list[Any] = [*KINDS, "tight", "8bit"]
    return dict(zip(names, train(*hosts, tight, eight), strict=True))


@pytest.fixture(scope="module")
def second(first: Any, tiny_model: Path, train: Any) -> dict[tuple[str, bool], Any]:
    def repeated(which: str, peft: bool) -> Any:
        [kept] = first[which, peft]["actions"][1]["kept"]
        return host(which, tiny_model, peft, PLAIN, {"resume": kept["path"]})

    return dict(zip(KINDS, train(*(repeated(w, p) for w, p in KINDS)), strict=True))


def made(action: dict[str, Any]) -> dict[str, Any]:
    ports = ("model", "adapter", "metrics", "curve")
    return {port: action[port] for port in ports if port in action}


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_gives_the_same_bytes_here_and_elsewhere(
    first: Any, second: Any, kind: Any
) -> None:
    begun, _, *rest = first[kind]["actions"]
    assert made(begun) == made(second[kind]["actions"][0])
    if kind == ("sft", True):
        assert made(begun) == made(rest[0])
    assert set(made(begun)) == {"metrics", "curve", "adapter" if kind[1] else "model"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_stopped_training_resumes_elsewhere_with_the_same_result(
    first: Any, second: Any, kind: Any
) -> None:
    stopped = first[kind]["actions"][1]
    assert stopped["kind"] == "drained"
    assert [k["done"] for k in stopped["kept"]] == [STOPPED_AT[kind[1]]]
    resumed = second[kind]["actions"][1]
    assert resumed["progress"][0][0] == STOPPED_AT[kind[1]]
    assert made(resumed) == made(first[kind]["actions"][0])


@pytest.mark.parametrize("kind", KINDS)
def test_checkpoints_and_saved_models_contain_no_pickle_and_no_path(first: Any, kind: Any) -> None:
    saved = first[kind]["actions"][0]
    folders = [
        Path(saved.get("adapter_path") or saved["model_path"]),
        Path(first[kind]["actions"][1]["kept"][0]["path"]),
    ]
    for file in (f for folder in folders for f in folder.rglob("*") if f.is_file()):
        assert file.suffix in {".safetensors", ".json"}, file
        assert str(folders[0].parents[2]).encode() not in file.read_bytes(), file


def test_adapters_share_one_model_which_is_unchanged_after_every_action(first: Any) -> None:
    for which in ENGINES:
        assert first[which, True]["shares"]
        bases = [a["base"] for a in first[which, True]["actions"] if "base" in a]
        assert bases[0][0]
        assert len({digest for pair in bases for digest in pair}) == 1


def test_another_seed_gives_another_adapter(first: Any) -> None:
    begun, *_ = first["sft", True]["actions"]
    other = first["sft", True]["actions"][3]
    differ = {file for file in begun["adapter"] if other["adapter"][file] != begun["adapter"][file]}
    assert differ == {"adapter_model.safetensors"}


def test_a_cancelled_training_stops_at_its_next_step(first: Any) -> None:
    cancelled = first["sft", True]["actions"][4]
    assert cancelled["kind"] == "cancelled"
    assert cancelled["progress"][-1][0] < 100


def test_packed_rows_do_not_see_each_other(first: Any) -> None:
    alone, packed = first["sft", True]["actions"][5:7]
    assert packed["metrics"]["tokens"] == alone["metrics"]["tokens"]
    assert packed["metrics"]["train_loss"] == pytest.approx(
        alone["metrics"]["train_loss"], rel=1e-5
    )


def test_chats_and_truncated_rows_are_trained_on_and_counted(first: Any) -> None:
    chat, cut = first["sft", True]["actions"][7:9]
    assert chat["metrics"]["rows_truncated"] == 0
    assert cut["metrics"]["rows_truncated"] == 0 < cut["metrics"]["tokens"]


def test_rows_that_cannot_be_trained_on_are_refused_with_a_remedy(first: Any) -> None:
    short, empty, both = first["sft", True]["actions"][9:12]
    diverged = first["sft", False]["actions"][2]
    assert "training diverged" in diverged["message"]
    assert "20 of 20 rows were dropped" in short["message"]
    assert empty["message"] == "there are no rows to learn from"
    assert "exactly one of the three" in both["remedy"]
    assert {a["kind"] for a in (diverged, short, empty, both)} == {"bad-input"}


def test_a_training_that_would_learn_nothing_or_the_wrong_thing_is_refused(first: Any) -> None:
    steps, epochs, modules, null = first["sft", True]["actions"][12:16]
    assert "with.max_steps is 0: nothing would be learned" in steps["message"]
    assert "with.num_train_epochs is 0" in epochs["message"]
    assert "lora_target_modules ['nope'] names no module" in modules["message"]
    assert "q_proj" in modules["remedy"]
    assert "row 1 of this chunk: a null would be printed" in null["message"]
    assert {a["kind"] for a in (steps, epochs, modules, null)} == {"bad-input"}


def test_the_curve_and_the_metrics_describe_the_training(first: Any) -> None:
    sft = first["sft", True]["actions"][0]
    assert [row["step"] for row in sft["curve"]] == [3, 4, 6]
    assert ["eval_loss" in row for row in sft["curve"]] == [True, False, True]
    assert sft["metrics"]["steps"] == 6
    assert (sft["metrics"]["rows"], sft["metrics"]["test_rows"]) == (16, 4)
    assert sft["progress"][-1] == [6, 6, "steps"]
    assert "step 6/6: loss" in first["sft", True]["printed"]
    dpo, reward = (first[w, False]["actions"][0]["metrics"] for w in ("dpo", "reward"))
    assert {"rewards_accuracies", "eval_rewards_margins"} <= set(dpo)
    assert {"accuracy", "margin", "eval_accuracy"} <= set(reward)


def test_every_reported_metric_is_declared_by_the_contract(first: Any) -> None:
    trained = [a for kind in KINDS for a in first[kind]["actions"] if "metrics" in a]
    assert len(trained) >= len(KINDS)
    assert {name for action in trained for name in action["undeclared"]} == set()


def test_a_reward_model_scores_with_one_label(first: Any) -> None:
    full, adapter = (first["reward", p]["actions"][0] for p in (False, True))
    config = json.loads((Path(full["model_path"]) / "config.json").read_text())
    assert config["architectures"] == ["LlamaForSequenceClassification"]
    assert list(config["id2label"]) == ["0"]
    given = json.loads((Path(adapter["adapter_path"]) / "adapter_config.json").read_text())
    assert (given["task_type"], given["modules_to_save"]) == ("SEQ_CLS", ["classifier", "score"])


def test_a_training_that_does_not_fit_is_refused_before_the_model_is_loaded(first: Any) -> None:
    [refused] = first["tight"]["actions"]
    assert refused["kind"] == "out-of-memory"
    assert "resources.memory" in refused["remedy"]


def test_8_bits_without_a_gpu_are_refused(first: Any) -> None:
    refused = first["8bit"]["load"]
    assert refused["kind"] == "unplaceable"
    assert "needs a GPU" in refused["message"]
