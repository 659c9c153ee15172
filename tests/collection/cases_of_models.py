"""Workflows of models that answer or embed, beside what transformers alone gives."""

from collections.abc import Callable
from typing import Any

from tests.collection.cases import Case, Inputs, Outputs, Row, equal
from tests.collection.reference import Reference, chat
from tests.collection.stand_ins import cosine
from tests.flowmesh_worker.hub import questions

MakeCase = Callable[[Reference], Case]
SAMPLES = 2
NUMBERS = [{"n": n} for n in range(100)]
ANSWERS = {'{"answer":"yes"}', '{"answer":"no"}'}


def completed(row: Row, found: tuple[str, str], output: str = "completion") -> Row:
    """Returns a row with its completion, as llm.generate adds it."""
    return {**row, output: found[0], "finish_reason": found[1], "sample": 0}


def of_prompts(
    input_name: str,
    output: str,
    prompt: Callable[[Row], str],
    changed: list[Row],
    *,
    tokens: int = 8,
    rows: list[Row] | None = None,
) -> MakeCase:
    """Returns a case of one completion a row."""

    def make(model: Reference) -> Case:
        def expected(inputs: Inputs) -> Outputs:
            given = inputs[input_name]
            return {output: [completed(r, model.complete(prompt(r), tokens)) for r in given]}

        read = {} if rows is None else {input_name: rows}
        return Case(equal(expected), {input_name: changed}, read)

    return make


def of_gsm8k(name: str, count: int) -> MakeCase:
    """Returns a case of a part of the stand-in's GSM8K."""
    rows = [{"question": r["question"]} for r in questions(name)[:count]]
    changed = [*rows[:-1], {"question": "another?"}]

    def prompt(row: Row) -> str:
        return f"Q: {row['question']}\nA:"

    return of_prompts("questions", "answers", prompt, changed, rows=rows)


def branches(model: Reference) -> Case:
    def expected(inputs: Inputs) -> Outputs:
        found = []
        for row in sorted(inputs["topics"], key=lambda r: str(r["topic"])):
            topic = row["topic"]
            good = model.complete(f"What is good in {topic}?")[0]
            bad = model.complete(f"What is bad in {topic}?")[0]
            text = f"{topic}: good {good}, bad {bad}. Together:"
            both = {"topic": topic, "good": good, "bad": bad}
            found.append(completed(both, model.complete(text), "synthesis"))
        return {"synthesis": found}

    return Case(equal(expected), {"topics": [{"topic": "cats"}, {"topic": "foxes"}]})


def vectors(model: Reference) -> Case:
    def expected(inputs: Inputs) -> Outputs:
        rows = [{**r, "embedding": model.vector(r["text"], "cls")} for r in inputs["texts"]]
        return {"vectors": rows}

    texts = ("the quick fox", "some lazy dog", "the quick fox")
    return Case(equal(expected), {"texts": [{"text": t} for t in texts]})


def chats_of_rows(model: Reference) -> Case:
    def expected(inputs: Inputs) -> Outputs:
        rows = []
        for row in inputs["chats"]:
            prompt = chat(*((m["role"], m["content"]) for m in row["messages"]))
            text, _ = model.complete(prompt, 12, no_repeat_ngram_size=3)
            source = row["metadata"]["source"]
            rows.append({"id": row["id"], "source": source, "completion": text})
        return {"answers": rows}

    first = [{"role": "user", "content": "Good day"}]
    second = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello"},
        {"role": "user", "content": "Bye"},
    ]
    changed: list[Row] = [
        {"id": "a", "metadata": {"source": "web", "rank": 1}, "messages": first},
        {"id": "b", "metadata": {"source": "mail", "rank": 2}, "messages": second},
    ]
    return Case(equal(expected), {"chats": changed})


def all_arguments(model: Reference) -> Case:
    del model  # what is drawn cannot be known

    def check(inputs: Inputs, outputs: Outputs) -> None:
        rows = outputs["completions"]
        wanted = [(r["text"], n) for r in inputs["prompts"] for n in range(SAMPLES)]
        assert [(r["text"], r["sample"]) for r in rows] == wanted
        assert {r["finish_reason"] for r in rows} == {"length"}
        assert all(r["completion"] for r in rows)
        assert all(r.keys() == {"text", "completion", "finish_reason", "sample"} for r in rows)

    changed = [{"text": "the quick brown fox"}, {"text": "the lazy cat"}]
    return Case(check, {"prompts": changed}, drawn=frozenset({"completion"}))


def callback(model: Reference) -> Case:
    def expected(inputs: Inputs) -> Outputs:
        sent = [
            {
                **completed(row, model.complete(row["prompt"])),
                "response": {"stored": row["id"]},
                "http_status": 200,
                "http_error": None,
            }
            for row in inputs["prompts"]
        ]
        return {"sent": sent}

    changed: list[Row] = [
        {"id": 1, "tags": ["a", "b"], "prompt": "the slow"},
        {"id": 2, "tags": [], "prompt": 'a "lazy" dog'},
    ]
    return Case(equal(expected), {"prompts": changed})


def structured(model: Reference) -> Case:
    del model  # transformers alone holds no text to a schema

    def check(inputs: Inputs, outputs: Outputs) -> None:
        rows = outputs["fields"]
        read = [{"id": r["id"], "report": r["report"]} for r in rows]
        assert read == sorted(inputs["reports"], key=lambda r: int(r["id"]))
        assert {r["animal"] for r in rows} <= {"fox", "dog"}
        assert {r["event"] for r in rows} <= {"jump", "sleep"}
        assert {r["certain"] for r in rows} <= {"yes", "no"}

    reports = [{"id": 1, "report": "the fox jumps"}, {"id": 2, "report": "the dog barks"}]
    return Case(check, {"reports": reports})


def chain(model: Reference) -> Case:
    def check(inputs: Inputs, outputs: Outputs) -> None:
        rows: Any = outputs["answers"]
        for row, asked in zip(rows, inputs["questions"], strict=True):
            question = asked["question"]
            draft, _ = model.complete(question)
            refined, _ = model.complete(f"{question} {draft}", model="second")
            known = {"question": question, "draft": draft, "refined": refined}
            held = {"answer": row["answer"], "finish_reason": "stop", "sample": 0}
            assert row == {**known, **held}
            assert "".join(row["answer"].split()) in ANSWERS

    changed = [{"question": "Do foxes jump?"}, {"question": "Do cats fly?"}]
    return Case(check, {"questions": changed})


def nearest_notes(model: Reference) -> Case:
    notes = {1: "foxes jump over dogs", 2: "bread is made of flour", 3: "rain fell all day"}

    def expected(inputs: Inputs) -> Outputs:
        kept = {number: model.vector(text, "mean") for number, text in notes.items()}
        found = []
        for row in sorted(inputs["questions"], key=lambda r: str(r["question"])):
            vector = model.vector(row["question"], "mean")
            number = max(kept, key=lambda n: cosine(kept[n], vector))
            found.append({**row, "id": number, "text": notes[number]})
        return {"nearest": found}

    texts = ("rain fell all day", "bread is made of flour")
    return Case(equal(expected), {"questions": [{"question": t} for t in texts]})


def text_of(row: Row) -> str:
    return str(row["text"])


MODEL_CASES: dict[str, MakeCase] = {
    "dag_inference_example": branches,
    "embedding_vllm_tiny": vectors,
    "inference_hf_chat": chats_of_rows,
    "inference_hf_tiny": of_prompts(
        "prompts", "completions", text_of, [{"text": "the quick brown"}, {"text": "the busy"}]
    ),
    "inference_tf_llama": of_gsm8k("train", 1),
    "inference_vllm_all_args": all_arguments,
    "inference_vllm_chat": of_prompts(
        "questions",
        "answers",
        lambda r: chat(("system", f"Answer in {r['style']}."), ("user", r["question"])),
        [
            {"style": "one word", "question": "What is a fox?"},
            {"style": "two words", "question": "What is a dog?"},
        ],
    ),
    "inference_vllm_http_callback": callback,
    "inference_vllm_llama": of_gsm8k("train", 2),
    "inference_vllm_mistral": of_gsm8k("socratic", 1),
    "inference_vllm_qwen3": of_prompts(
        "prompts",
        "answers",
        lambda r: chat(("user", r["text"])),
        [{"text": "What is a fox?"}, {"text": "What is a cat?"}],
    ),
    "inference_vllm_structured": structured,
    "inference_vllm_tiny": of_prompts(
        "numbers",
        "completions",
        lambda r: f"{r['n']} quick foxes",
        [*NUMBERS[:-1], {"n": 1000}],
        tokens=4,
        rows=NUMBERS,
    ),
    "multi_step_cot": chain,
    "rag_query_qdrant": nearest_notes,
}
