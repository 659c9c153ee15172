"""Rows to prompts: dropped rows, held-out rows and refusals."""

from typing import Any

import pytest

from flowmesh_core.errors import AttemptError, FailureKind
from flowmesh_worker.engines.train.examples import held_out
from flowmesh_worker.engines.train.ppo import episodes, spare_token
from flowmesh_worker.engines.train.prompts import ContextBudget, read_prompts
from flowmesh_worker.engines.train.reinforcement import completions_a_step

ROWS = [{"q": "x" * n} for n in range(1, 11)]
LONG = [{"q": "x" * n} for n in (9, 99)]
ROOM = ContextBudget(context=12, completion=4, parameter="response_length")
PARAMS = {"prompt": "{{ q }}", "seed": 7}


class Letters:
    """A tokenizer of letters, with a chat template that adds one token to each message."""

    chat_template = "there is one"
    eos_token_id = 2

    def __call__(self, text: str) -> dict[str, list[int]]:
        return {"input_ids": [ord(c) for c in text]}

    def apply_chat_template(self, messages: list[dict[str, str]], **_: Any) -> list[int]:
        return [t for m in messages for t in (1, *map(ord, m["content"]))]


def test_prompts_without_room_for_a_completion_are_left_out_and_counted() -> None:
    made = read_prompts(ROWS, PARAMS, Letters(), ROOM)
    assert [e["number"] for e in made.train] == list(range(8))
    assert made.train[2] == {"input_ids": [120] * 3, "prompt": "xxx", "number": 2}
    assert made.longest == 12
    assert made.counts == {"rows_dropped": 2}
    assert not made.test


def test_a_chat_is_passed_to_the_rewards_as_a_chat() -> None:
    params = {"messages": [{"role": "user", "content": "{{ q }}"}], "seed": 7}
    [made] = read_prompts(ROWS[:1], params, Letters(), ROOM).train
    assert made["prompt"] == [{"role": "user", "content": "x"}]
    assert made["input_ids"] == [1, 120]


def test_held_out_rows_are_the_same_for_every_trainer() -> None:
    made = read_prompts(ROWS[:8], {**PARAMS, "test_size": 0.25}, Letters(), ROOM)
    assert {e["number"] for e in made.test} == held_out(8, 0.25, 7)
    assert len(made.train) == 6


@pytest.mark.parametrize(
    ("rows", "room", "message"),
    [
        ([], ROOM, "there are no rows"),
        (LONG, ROOM, "no row to learn from leaves room for a completion: 2 of 2 prompts"),
        (ROWS, ContextBudget(4, 4, "response_length"), "4 tokens are all that the model reads"),
    ],
)
def test_rows_with_nothing_to_learn_are_refused(
    rows: Any, room: ContextBudget, message: str
) -> None:
    with pytest.raises(AttemptError, match=message) as error:
        read_prompts(rows, PARAMS, Letters(), room)
    assert error.value.failure.kind is FailureKind.BAD_INPUT
    assert error.value.failure.remedy


def test_the_number_of_episodes_comes_from_the_first_parameter_that_is_set() -> None:
    params = {"total_episodes": 10, "max_steps": 3, "num_train_epochs": 0.5}
    assert episodes(params, 8, 4) == 10
    assert episodes({**params, "total_episodes": None}, 8, 4) == 12
    assert episodes({**params, "total_episodes": None, "max_steps": -1}, 8, 4) == 4
    batch = {"per_device_train_batch_size": 4, "gradient_accumulation_steps": 3}
    assert completions_a_step(batch) == 12


class Special:
    """A tokenizer's special tokens."""

    eos_token_id = 2
    bos_token_id = 1

    def __init__(self, pad: int | None, *special: int) -> None:
        self.pad_token_id = pad
        self.added_tokens_decoder = dict.fromkeys(special, "")


@pytest.mark.parametrize(
    ("tokenizer", "used", "pad"),
    [
        (Special(5, 1, 2, 5, 9), [], 5),
        (Special(2, 1, 2, 5, 9), [], 9),
        (Special(2, 1, 2, 5, 9), [9], 5),
        (Special(None, 1, 2, 5, 99), [], 5),
    ],
)
def test_padding_uses_a_token_without_another_meaning(
    tokenizer: Any, used: list[int], pad: int
) -> None:
    assert spare_token(tokenizer, 10, used) == pad


def test_padding_is_refused_if_no_token_is_unused() -> None:
    with pytest.raises(AttemptError, match="no unused special token"):
        spare_token(Special(2, 1, 2, 5), 10, [5])
