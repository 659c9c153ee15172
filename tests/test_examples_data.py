"""The examples' data equals the generator's output, and its answers are right."""

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

DATA = Path(__file__).parent.parent / "examples" / "data"
MADE: dict[str, list[dict[str, Any]]] = runpy.run_path(str(DATA / "make_data.py"))["files"]()


def test_the_files_equal_the_generators_output() -> None:
    assert {p.stem for p in DATA.glob("*.jsonl")} == set(MADE)
    for name, rows in MADE.items():
        lines = (DATA / f"{name}.jsonl").read_text().splitlines()
        assert [json.loads(line) for line in lines] == rows


def test_training_and_test_problems_do_not_overlap() -> None:
    train, test = ({r["question"] for r in MADE[f"word-problems-{n}"]} for n in ("train", "test"))
    assert len(train) == 128
    assert len(test) == 48
    assert not train & test


@pytest.mark.parametrize(
    ("start", "answer"),
    [
        ("A baker makes 33 rolls and then 18 more.", "51"),
        ("A bus carries 40 people and 6 get off.", "34"),
        ("A shelf has 3 boards with 32 books each.", "96"),
    ],
)
def test_the_answers_of_the_problems_are_correct(start: str, answer: str) -> None:
    (row,) = [r for r in MADE["word-problems-test"] if r["question"].startswith(start)]
    assert row["target"] == answer


def test_choices_differ_and_hold_the_answer() -> None:
    for row in MADE["multiple-choice"]:
        assert len(set(row["choices"])) == 4
        assert 0 <= row["answer"] < 4
    assert {r["answer"] for r in MADE["multiple-choice"]} == {0, 1, 2, 3}


def test_every_question_about_a_town_is_answered_by_the_fact_that_it_names() -> None:
    facts = {r["title"]: r["text"] for r in MADE["town-facts"]}
    for row in MADE["town-questions"]:
        assert row["target"] in facts[row["title"]]
        assert row["title"].partition(":")[0] in row["question"]


def test_every_pair_prefers_one_answer_to_another() -> None:
    assert all(r["chosen"] != r["rejected"] for r in MADE["truthfulness"])
