"""LoRA adapters on vLLM: several in one batch give the same results as each alone."""

import contextlib
import json
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

sys.path.insert(0, str(Path(__file__).parent))

from conftest import adapters_of
from jobs import PROMPTS, action, completions, job

from flowmesh_worker.engine_api import HostSettings
from flowmesh_worker.engines.llm.adapters import LoraTargets
from flowmesh_worker.engines.llm.vllm_sizes import sizes_for
from flowmesh_worker.engines.models.model_facts import read_facts

pytestmark = [pytest.mark.slow, pytest.mark.model]

SERVED = ("small", "all", "third")
WRONG = ("large", "head", "saved", "other")
EVERY = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
MEMORY_MIB = 1110
"""Just enough for two adapters at once: three among the requests take turns."""


@pytest.fixture(scope="module")
def adapters(tiny_model: Path) -> dict[str, Path]:
    """Three adapters that vLLM serves, and those that it would refuse late or apply wrongly."""
    made = adapters_of(
        tiny_model,
        small={"seed": 1},
        all={"r": 16, "lora_alpha": 64, "target_modules": EVERY, "seed": 2},
        third={"use_rslora": True, "target_modules": ["down_proj", "q_proj"], "seed": 3},
        large={"r": 72},
        head={"target_modules": ["lm_head"]},
        saved={"modules_to_save": ["lm_head"]},
        other={"r": 72},
    )
    config = made["other"] / "adapter_config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"r": 8}))
    return made


def one_batch(adapters: dict[str, Path]) -> list[dict[str, Any]]:
    """Returns an action for each prompt, without an adapter and with each, greedy and sampled."""
    given = [{}, *({"_adapter": str(adapters[name])} for name in SERVED)]
    return [
        action(p, **given[i % 4], maxTokens=24, temperature=0 if i < 8 else 0.9)
        for i, p in enumerate(PROMPTS[:16])
    ]


@pytest.fixture(scope="module")
def answers(tiny_model: Path, adapters: dict[str, Path], drive: Any) -> dict[str, Any]:
    batch = one_batch(adapters)
    bad = [action("x", _adapter=str(adapters[name])) for name in WRONG]
    alone = [[one] for one in batch]
    batches = [batch, *alone, bad + batch, []]
    killed = {"die_before": len(batches) - 1}
    return drive(job(tiny_model, *batches, mixed=["adapter"], memory_mib=MEMORY_MIB, **killed))


def test_two_adapters_fit_into_an_engine_of_this_size(tiny_model: Path) -> None:
    slot_bytes = LoraTargets.of_model(tiny_model).slot_bytes(4)
    host = HostSettings((), MEMORY_MIB, 2, {}, tiny_model)
    assert sizes_for(read_facts(tiny_model), "float32", host, slot_bytes).adapter_slots == 2


def test_a_batch_with_and_without_adapters_gives_the_same_results_as_each_alone(
    answers: dict[str, Any],
) -> None:
    together = completions(answers["batches"][0])
    assert len(set(together)) == 16
    assert together == [completions(b)[0] for b in answers["batches"][1:17]]


def test_one_batch_agrees_with_transformers_and_peft(
    tiny_model: Path, adapters: dict[str, Path], answers: dict[str, Any], drive: Any
) -> None:
    greedy = one_batch(adapters)[:8]
    there = drive(job(tiny_model, greedy, signature={"implementation": "transformers"}))
    expected = [t.rstrip("\ufffd") for t in completions(there["batches"][0])]
    assert [t.rstrip("\ufffd") for t in completions(answers["batches"][0])[:8]] == expected


@pytest.mark.parametrize(
    ("which", "said"),
    [
        ("large", "has rank 72; vLLM serves 1 to 64"),
        ("head", "lm_head"),
        ("saved", "has modules_to_save: ['lm_head'], which vLLM does not serve"),
        ("other", "its layer has 64 inputs and 64 outputs and the rank is 8"),
    ],
)
def test_an_adapter_that_vllm_would_apply_wrongly_is_refused(
    answers: dict[str, Any], which: str, said: str
) -> None:
    refused = answers["batches"][17][WRONG.index(which)]
    assert refused["kind"] == "bad-input"
    assert said in refused["message"]
    assert "model.merge" in refused["remedy"] or which == "other"


def test_a_refused_adapter_hurts_no_other_of_its_batch(answers: dict[str, Any]) -> None:
    assert completions(answers["batches"][17][4:]) == completions(answers["batches"][0])


def test_a_killed_hosts_engine_core_ends_with_it(answers: dict[str, Any]) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(answers["core"]).wait(timeout=300)
