"""Steps and inputs that the tests of compilation share."""

ROWS = [{"question": "1+1?", "target": "2"}]
INPUTS = {"base": {"model": "smollm2-135m-instruct"}, "questions": {"rows": ROWS}}
GENERATE = {
    "uses": "llm.generate",
    "inputs": {"model": "inputs.base", "rows": "inputs.questions"},
    "with": {"prompt": "{{ question }}"},
}
SQL = {"uses": "data.sql", "with": {"query": "select 1"}}
SCORE = {"uses": "eval.exact-match", "with": {"prediction": "completion", "target": "target"}}
