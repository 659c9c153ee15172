"""Workflows that need no model here: data, Python, and chats with an API's stand-in."""

from typing import Any

from tests.collection.cases import Case, Inputs, Outputs, Row, equal
from tests.collection.stand_ins import chat_answer

CALLED: Row = {"finish_reason": "stop", "http_status": 200, "http_error": None}
ENOUGH = 10


def simple_agent(inputs: Inputs) -> Outputs:
    answers = [
        {**row, "completion": chat_answer("", row["text"]), **CALLED} for row in inputs["tasks"]
    ]
    return {"answers": answers}


def batch(inputs: Inputs) -> Outputs:
    system = "Answer in one word."
    answers = [
        {**row, "completion": chat_answer(system, row["question"]), **CALLED}
        for row in inputs["questions"]
    ]
    return {"answers": answers}


def two_stage(inputs: Inputs) -> Outputs:
    titles = []
    for row in sorted(inputs["topics"], key=lambda r: str(r["topic"])):
        draft = chat_answer("", f"Write a line about {row['topic']}.")
        title = chat_answer("", f"Give this a title: {draft}")
        titles.append({**row, "draft": draft, "title": title})
    return {"titles": titles}


def conditional(inputs: Inputs) -> Outputs:
    [row] = inputs["texts"]
    greeting = f"{row['text']}, world" if row["text"] == "hello" else None
    greeted = None if greeting is None else [{"text": greeting}]
    return {"greeted": greeted, "report": [{**row, "greeting": greeting}]}


def echo(inputs: Inputs) -> Outputs:
    return {"echo": [{"echo": row["text"]} for row in inputs["texts"]]}


def three_nodes(inputs: Inputs) -> Outputs:
    texts = sorted(f"{node}: {r['text']}" for node in ("first", "second") for r in inputs["texts"])
    return {"echo": [{"node": "third", "text": text} for text in texts]}


def python(inputs: Inputs) -> Outputs:
    squares = [{**row, "square": row["number"] ** 2} for row in inputs["numbers"]]
    total = sum(row["square"] for row in squares)
    shares: Any = [{**row, "share": round(row["square"] / total, 3)} for row in squares]
    return {"total": {"total": total}, "shares": shares if total > ENOUGH else None}


CASES = {
    "agent_simple_test": Case(equal(simple_agent), {"tasks": [{"text": "And of Italy?"}]}),
    "api_batch": Case(
        equal(batch),
        {
            "questions": [
                {"id": 1, "question": "What is the capital of France?"},
                {"id": 2, "question": "What is the capital of Spain?"},
                {"id": 3, "question": "What is 2 + 2?"},
            ]
        },
    ),
    "api_two_stage": Case(equal(two_stage), {"topics": [{"topic": "rivers"}, {"topic": "seas"}]}),
    "conditional_echo_test": Case(equal(conditional), {"texts": [{"text": "goodbye"}]}),
    "echo_local": Case(equal(echo), {"texts": [{"text": "goodbye"}]}),
    "echo_three_node_graph": Case(
        equal(three_nodes), {"texts": [{"text": "hello"}, {"text": "moon"}]}
    ),
    "python_two_stage": Case(
        equal(python), {"numbers": [{"number": 1}, {"number": 2}, {"number": 1}]}
    ),
}
