"""Workflows that train a model: what it learned is measured, or recalled."""

from tests.collection.cases import Case, Inputs, Outputs, Row, equal
from tests.flowmesh_worker.hub import questions

STEPS = 6
COLOURS = [{"question": "red", "answer": "apple"}, {"question": "blue", "answer": "sea"}]


def preferred(inputs: Inputs) -> Outputs:
    pairs = sorted(inputs["pairs"], key=lambda r: str(r["question"]))
    figures = {"preferred": True, "pairs": len(pairs), "steps": STEPS}
    return {"report": [{**pair, **figures} for pair in pairs]}


def learned(input_name: str) -> Case:
    """Returns a case of a training after which every answer is more probable."""

    def expected(inputs: Inputs) -> Outputs:
        rows = sorted(inputs[input_name], key=lambda r: str(r["question"]))
        figures = {"learned": True, "rows": len(rows), "steps": STEPS}
        return {"report": [{**row, **figures} for row in rows]}

    return Case(equal(expected), {input_name: COLOURS})


def recalled(inputs: Inputs) -> Outputs:
    rows = [
        {**r, "completion": f" {r['answer']}", "finish_reason": "stop", "sample": 0}
        for r in inputs["rows"]
    ]
    return {"recalled": rows}


PAIRS: list[Row] = [
    {"question": "2+2=", "good": "4", "bad": "5"},
    {"question": "3+3=", "good": "6", "bad": "8"},
]
GSM8K: list[Row] = list(questions("train"))
OF_GSM8K = learned("rows")
SECOND = learned("second")
TRAINING_CASES = {
    "dpo_training_llama_1b": Case(equal(preferred), {"pairs": PAIRS}),
    "dpo_training_ministral": Case(equal(preferred), {"pairs": PAIRS}),
    "lora_sft_llama": Case(OF_GSM8K.check, OF_GSM8K.changed, {"rows": GSM8K}),
    "lora_then_inference": Case(equal(recalled), {"rows": COLOURS}),
    "sft_llama_1b": learned("rows"),
    "sft_llama_two_stage": Case(SECOND.check, SECOND.changed, unchanged=frozenset({"early"})),
}
