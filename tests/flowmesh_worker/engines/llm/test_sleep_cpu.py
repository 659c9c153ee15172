"""vLLM on a CPU asleep: its cache is freed, and answers after it has woken are what they were.

These fail if vLLM no longer keeps its cache where ``sleep_cpu`` looks for it, or has its worker
sleep by other methods.
"""

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from jobs import PROMPTS, action, completions, job, mixed

pytestmark = [pytest.mark.slow, pytest.mark.model]

LONG = [f"the fox {'jumps over ' * 60}the dog {n}" for n in range(48)]


@pytest.fixture(scope="module")
def answers(tiny_model: Path, drive: Any) -> dict[str, Any]:
    filled = [action(*LONG, temperature=0.9)]
    batches = [mixed(PROMPTS), filled, filled, mixed(PROMPTS), filled]
    return drive(job(tiny_model, *batches, sleep_before=[2, 3, 4]))  # type: ignore[no-any-return]


def test_answers_after_a_sleep_are_equal_to_the_byte(answers: dict[str, Any]) -> None:
    first, filled, again, last, twice = answers["batches"]
    assert completions(again) == completions(filled) == completions(twice)
    assert completions(last) == completions(first)
    assert len(set(completions(filled))) > len(LONG) // 2


def test_the_cache_is_freed_and_comes_back_in_an_instant(answers: dict[str, Any]) -> None:
    first = answers["slept"][0]  # later only what requests have used is there to be freed
    assert first["awake_mib"] - first["asleep_mib"] >= 0.8 * first["cache_mib"]
    for one in answers["slept"]:
        print(one)  # noqa: T201 - shown with -s
        assert one["asleep_mib"] <= one["said_mib"]
        assert one["sleep_s"] + one["wake_s"] < 5.0


def test_vllm_says_nothing_of_a_mode_that_it_does_not_support(answers: dict[str, Any]) -> None:
    assert len(answers["slept"]) == 3
    assert "sleep mode" not in answers["printed"]
