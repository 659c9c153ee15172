"""Chats from a column: what admission accepts and refuses."""

from typing import Any

import pytest

CHAT = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
INPUTS = {
    "base": {"model": "smollm2-135m-instruct"},
    "chats": {"rows": [{"chat": CHAT, "good": CHAT, "bad": CHAT, "name": "x"}, {"name": "y"}]},
}
ON = {"model": "inputs.base", "rows": "inputs.chats"}
CHAT_ENGINES: list[tuple[str, dict[str, Any]]] = [
    ("llm.generate", {}),
    ("llm.agent", {"tools": ["calculator"]}),
    ("llm.score", {"method": "judge"}),
    ("http.chat", {"endpoint": "https://example.com/v1", "model": "m"}),
    ("train.sft", {}),
    ("train.dpo", {"chosen": "a", "rejected": "b"}),
    ("train.reward", {"chosen": "a", "rejected": "b"}),
]


def step(engine: str, **params: Any) -> dict[str, Any]:
    ports = {"rows": "inputs.chats"} if engine == "http.chat" else ON
    return {"uses": engine, "inputs": ports, "with": params}


@pytest.mark.parametrize(("engine", "more"), CHAT_ENGINES, ids=[e for e, _ in CHAT_ENGINES])
def test_every_engine_that_reads_chats_takes_them_from_a_column(
    problems: Any, engine: str, more: dict[str, Any]
) -> None:
    def found(**params: Any) -> dict[str, str]:
        reported: dict[str, str] = problems(step(engine, **more, **params), inputs=INPUTS)
        return {path.removeprefix("spec.steps[0].with"): m for path, m in reported.items()}

    assert found(messagesFrom="chat") == {}
    assert found(messagesFrom="chat", messages=CHAT[:1], messagesFormat="sharegpt") == {}
    assert found(messagesFrom="chats") == {
        ".messagesFrom": "no column 'chats' in the rows; did you mean 'chat'?"
    }
    assert found(messagesFrom="name") == {
        ".messagesFrom": "column 'name' holds strings; messagesFrom takes a list of {role, content}"
    }
    needed = "messagesFrom or chosenFrom" if "chosen" in more else "messagesFrom"
    assert found(messages=CHAT[:1], messagesFormat="sharegpt") == {
        ".messagesFormat": f"messagesFormat needs {needed}"
    }


@pytest.mark.parametrize(
    ("engine", "params", "message"),
    [
        (
            "llm.generate",
            {"prompt": "x", "messagesFrom": "chat"},
            "llm.generate needs exactly one of prompt, messages (or messagesFrom); got prompt and"
            " messagesFrom",
        ),
        (
            "http.chat",
            {"endpoint": "https://example.com", "model": "m"},
            "http.chat needs messages (or messagesFrom); got none",
        ),
        (
            "train.sft",
            {"text": "x", "messagesFrom": "chat"},
            "train.sft needs exactly one of text, completion, messages (or messagesFrom); got text"
            " and messagesFrom",
        ),
        (
            "train.dpo",
            {"prompt": "x", "chosenFrom": "good", "rejectedFrom": "bad"},
            "train.dpo needs exactly one of prompt, messages (or messagesFrom or chosenFrom); got"
            " prompt and chosenFrom",
        ),
        (
            "train.reward",
            {"chosenFrom": "good", "chosen": "x", "rejectedFrom": "bad"},
            "train.reward needs exactly one of chosen, chosenFrom; got chosen and chosenFrom",
        ),
        (
            "train.reward",
            {"prompt": "x", "rejected": "y"},
            "train.reward needs exactly one of chosen, chosenFrom; got none",
        ),
    ],
)
def test_a_step_has_one_source_of_its_chat(
    problems: Any, engine: str, params: dict[str, Any], message: str
) -> None:
    assert problems(step(engine, **params), inputs=INPUTS) == {"spec.steps[0].with": message}


@pytest.mark.parametrize("engine", ["train.dpo", "train.reward"])
def test_pairs_of_chats_are_named_by_two_columns_and_need_no_prompt(
    problems: Any, engine: str
) -> None:
    pair = {"chosenFrom": "good", "rejectedFrom": "bad"}
    assert problems(step(engine, **pair, messagesFormat="sharegpt"), inputs=INPUTS) == {}
    assert problems(step(engine, **pair, messagesFrom="chat"), inputs=INPUTS) == {}
    mixed = step(engine, chosenFrom="good", rejected="x")
    assert problems(mixed, inputs=INPUTS) == {
        "spec.steps[0].with.chosenFrom": "chosenFrom needs rejectedFrom"
    }
    assert problems(step(engine, **pair | {"chosenFrom": "name"}), inputs=INPUTS) == {
        "spec.steps[0].with.chosenFrom": "column 'name' holds strings; chosenFrom takes a list of"
        " {role, content}"
    }


def test_a_transcript_is_a_column_of_chats_for_the_next_step(problems: Any) -> None:
    first = step("llm.generate", messagesFrom="chat", transcript="so_far")
    then = {**step("llm.generate", messagesFrom="so_far"), "inputs": ON | {"rows": "a.rows"}}
    assert problems(first, then, inputs=INPUTS) == {}
    assert problems(step("llm.generate", prompt="x", transcript="so_far"), inputs=INPUTS) == {
        "spec.steps[0].with.transcript": "transcript needs messages"
    }
    same = step("llm.generate", messagesFrom="chat", transcript="completion")
    assert problems(same, inputs=INPUTS) == {
        "spec.steps[0].with.transcript": "transcript and output are both the column 'completion'"
    }


def test_a_column_that_an_engine_replaces_is_not_known_to_hold_texts(problems: Any) -> None:
    first = step("http.request", url="https://example.com", output="name", parse="json")
    first["inputs"] = {"rows": "inputs.chats"}
    then = {**step("llm.generate", messagesFrom="name"), "inputs": ON | {"rows": "a.rows"}}
    assert problems(first, then, inputs=INPUTS) == {}
    kept = step("http.request", url="https://example.com")
    kept["inputs"] = {"rows": "inputs.chats"}
    assert list(problems(kept, then, inputs=INPUTS)) == ["spec.steps[1].with.messagesFrom"]
