"""``train.ppo`` and ``train.grpo`` on models of two layers.

They use two processes: the second must repeat the first's trainings byte for byte, and resume those
that were stopped.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.flowmesh_worker.engines.train.conftest import Train

pytestmark = [pytest.mark.slow, pytest.mark.model]

ROWS = [{"q": f"{a}+{b}", "sum": a + b} for a in range(4) for b in range(4)]
CHAT = [{"role": "user", "content": "{{ q }}"}]
ENGINES = {"ppo": "TrainPpo", "grpo": "TrainGrpo"}
SHARED = {"learning_rate": 1e-2, "per_device_train_batch_size": 4, "logging_steps": 2}
OWN: dict[str, dict[str, Any]] = {
    "ppo": {
        "prompt": "{{ q }}=",
        # Goes into its second pass over the prompts.
        "total_episodes": 24,
        "response_length": 5,
        "num_ppo_epochs": 2,
        "num_mini_batches": 2,
        "missing_eos_penalty": 1.0,
    },
    "grpo": {
        "messages": CHAT,
        "max_steps": 6,
        "max_completion_length": 5,
        "num_generations": 2,
        # A stop between two steps on the same completions has to wait.
        "num_iterations": 2,
        "gradient_accumulation_steps": 2,
        "beta": 0.1,
        "per_device_eval_batch_size": 4,
        "test_size": 0.25,
        "reward_funcs": [
            {"name": "number-equals", "target": "sum"},
            {"name": "length-at-most", "tokens": 3},
        ],
        "reward_weights": [1.0, 0.5, 0.25],
    },
}
PLAIN: dict[str, Any] = {}
STOPPED_AT = {"ppo": 5, "grpo": 4}
# Asked to stop by its first regular checkpoint: of GRPO after step 3, where it has to wait.
STOPPED: dict[str, dict[str, Any]] = {
    "ppo": {"stop": "kept", "with": {"save_steps": 5}},
    "grpo": {"stop": "kept", "with": {"save_steps": 3}},
}
KINDS = [(which, peft) for which in ENGINES for peft in (True, False)]


def one(**params: Any) -> dict[str, Any]:
    return {"with": params}


def host(which: str, models: Path, peft: bool, *actions: dict[str, Any], **more: Any) -> Any:
    return {
        "engine": f"flowmesh_worker.engines.train.{which}:{ENGINES[which]}",
        "uses": f"train.{which}",
        "model": str(models / "policy"),
        "components": {"reward": str(models / "judge")},
        "rows": ROWS,
        "with": {**SHARED, **OWN[which], "use_peft": peft},
        "signature": {"use_peft": peft, "load_in_8bit": False, "dtype": "auto"},
        "actions": actions,
        **more,
    }


@pytest.fixture(scope="module")
def models(tiny_policies: Path) -> Path:
    return tiny_policies


@pytest.fixture(scope="module")
def first(models: Path, train: Train) -> dict[Any, Any]:
    without = {"test_size": 0.0, "max_steps": 1}
    extra: dict[Any, tuple[dict[str, Any], ...]] = {
        ("ppo", True): (
            PLAIN,
            one(seed=7),
            {"cancel_after": 2, "with": {"total_episodes": 100_000}},
            one(prompt=None, messages=CHAT, total_episodes=4, gradient_checkpointing=False),
            one(response_length=200),
            one(per_device_train_batch_size=32),
            one(num_mini_batches=3),
            one(num_ppo_epochs=1, num_mini_batches=1, logging_steps=1),
        ),
        ("grpo", True): (
            PLAIN,
            one(seed=7),
            {"cancel_after": 2, "with": {"max_steps": 10_000}},
            one(num_generations=3),
            one(reward_weights=[1.0]),
            one(reward_funcs=[], reward_weights=None, num_iterations=1, **without),
        ),
    }
    hosts = [host(w, models, p, PLAIN, STOPPED[w], *extra.get((w, p), ())) for w, p in KINDS]
    nothing = one(reward_funcs=[], reward_weights=None)
    checks = {"prompt": "{{ q }}=", "messages": None, "reward_weights": None}
    alone = host("grpo", models, True, one(**checks, **without), nothing, components={})
    tight = host("ppo", models, False, PLAIN, memory_mib=904)
    no_judge = host("ppo", models, True, PLAIN, components={"reward": str(models / "policy")})
    names: list[Any] = [*KINDS, "alone", "tight", "no judge"]
    return dict(zip(names, train(*hosts, alone, tight, no_judge), strict=True))


@pytest.fixture(scope="module")
def second(first: Any, models: Path, train: Train) -> dict[tuple[str, bool], Any]:
    def repeated(which: str, peft: bool) -> Any:
        [kept] = first[which, peft]["actions"][1]["kept"]
        return host(which, models, peft, PLAIN, {"resume": kept["path"]})

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
    if kind[1]:
        assert made(begun) == made(rest[0])
    assert set(made(begun)) == {"metrics", "curve", "adapter" if kind[1] else "model"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_stopped_training_resumes_elsewhere_with_the_same_result(
    first: Any, second: Any, kind: Any
) -> None:
    stopped, at = first[kind]["actions"][1], STOPPED_AT[kind[0]]
    assert stopped["kind"] == "drained"
    assert [k["done"] for k in stopped["kept"]] == [at]
    resumed = second[kind]["actions"][1]
    assert resumed["progress"][0][0] == at
    assert made(resumed) == made(first[kind]["actions"][0])


@pytest.mark.parametrize("which", ENGINES)
def test_the_shared_model_is_unchanged_after_every_action(first: Any, which: str) -> None:
    bases = [a["base"] for a in first[which, True]["actions"] if "base" in a]
    assert bases[0][0]
    assert len({digest for pair in bases for digest in pair}) == 1


@pytest.mark.parametrize("which", ENGINES)
def test_another_seed_gives_another_adapter(first: Any, which: str) -> None:
    begun, other = first[which, True]["actions"][0], first[which, True]["actions"][3]
    differ = {file for file in begun["adapter"] if other["adapter"][file] != begun["adapter"][file]}
    assert differ == {"adapter_model.safetensors"}


@pytest.mark.parametrize("which", ENGINES)
def test_a_cancelled_training_stops_at_its_next_step(first: Any, which: str) -> None:
    cancelled = first[which, True]["actions"][4]
    assert cancelled["kind"] == "cancelled"
    assert cancelled["progress"][-1][0] < 100


def test_the_curve_shows_reward_and_kl_divergence_per_step(first: Any) -> None:
    for which in ENGINES:
        trained = first[which, True]["actions"][0]
        assert [row["step"] for row in trained["curve"]] == [2, 4, 6]
        assert all({"loss", "reward", "kl"} <= set(row) for row in trained["curve"])
        assert trained["progress"][-1] == [6, 6, "steps"]
        assert f"{which}" in ENGINES
    assert ", reward " in first["ppo", True]["printed"]
    ppo, grpo = (first[w, True]["actions"][0]["metrics"] for w in ENGINES)
    assert ppo["kl"] > 0
    assert {"objective_rlhf_reward", "loss_value_avg", "episode"} <= set(ppo)
    named = {"number_equals", "length_at_most", "reward_model"}
    assert {f"rewards_{name}_mean" for name in named} <= set(grpo)
    assert {"eval_reward", "test_rows"} <= set(grpo)
    assert not [name for m in (ppo, grpo) for name in m if "time" in name or name == "eps"]


def test_every_reported_metric_is_declared_by_the_contract(first: Any) -> None:
    trained = [a for kind in KINDS for a in first[kind]["actions"] if "metrics" in a]
    assert len(trained) >= len(KINDS)
    assert {name for action in trained for name in action["undeclared"]} == set()


def test_training_with_one_update_per_step_works_like_any_other(first: Any) -> None:
    single = first["ppo", True]["actions"][9]
    assert single.get("message") is None
    assert [row["step"] for row in single["curve"]] == [1, 2, 3, 4, 5, 6]
    assert all(row["val_ratio"] == pytest.approx(1, abs=1e-3) for row in single["curve"])
    assert not any("val_ratio_var" in row for row in single["curve"])
    several = first["ppo", True]["actions"][0]
    assert all(row["val_ratio_var"] > 0 for row in several["curve"])
    assert "degrees of freedom" not in first["ppo", True]["printed"]


def test_the_policy_starts_with_zero_kl_divergence(first: Any) -> None:
    chat = first["ppo", True]["actions"][5]
    assert chat["curve"][0]["kl"] == pytest.approx(0, abs=1e-4)


def test_weights_of_rewards_add_up(first: Any) -> None:
    row = first["grpo", True]["actions"][0]["curve"][-1]
    parts = (("number_equals", 1.0), ("length_at_most", 0.5), ("reward_model", 0.25))
    total = sum(row[f"rewards_{name}_mean"] * weight for name, weight in parts)
    assert row["reward"] == pytest.approx(total, rel=1e-4, abs=1e-6)


def test_a_reward_model_alone_or_checks_alone_are_sufficient(first: Any) -> None:
    judged = first["grpo", True]["actions"][7]["metrics"]
    assert judged["reward"] == pytest.approx(judged["rewards_reward_model_mean"])
    checked = first["alone"]["actions"][0]["metrics"]
    assert "rewards_number_equals_mean" in checked
    assert "rewards_reward_model_mean" not in checked


def test_incompatible_parameters_are_refused_with_a_remedy(first: Any) -> None:
    long, few, uneven = first["ppo", True]["actions"][6:9]
    groups, weights = first["grpo", True]["actions"][5:7]
    nothing = first["alone"]["actions"][1]
    assert "200 tokens are all that the model reads (128)" in long["message"]
    assert "a step needs 32 prompts" in few["message"]
    assert "4 prompts cannot be cut into 3" in uneven["message"]
    assert "3 completions of a prompt do not divide the 8 of a step" in groups["message"]
    assert "expected 3 numbers, for reward_funcs and the reward model" in weights["message"]
    assert nothing["message"] == "there is no reward for the completions"
    refused = (long, few, uneven, groups, weights, nothing)
    assert {a["kind"] for a in refused} == {"bad-input"}
    assert all(a["remedy"] for a in refused)
    assert "no head that scores" in first["no judge"]["load"]["message"]


def test_a_training_that_does_not_fit_is_refused_with_a_size_that_would(first: Any) -> None:
    [refused] = first["tight"]["actions"]
    assert refused["kind"] == "out-of-memory"
    assert "the value model's training" in refused["message"]
    assert "resources.memory" in refused["remedy"]


def test_a_full_policy_is_saved_with_its_original_configuration(first: Any, models: Path) -> None:
    for which in ENGINES:
        folder = Path(first[which, False]["actions"][0]["model_path"])
        for name in ("generation_config.json", "tokenizer_config.json", "tokenizer.json"):
            assert (folder / name).read_bytes() == (models / "policy" / name).read_bytes(), name
        config = json.loads((folder / "config.json").read_text())
        assert config["architectures"] == ["LlamaForCausalLM"]
        assert config["pad_token_id"] == 0
