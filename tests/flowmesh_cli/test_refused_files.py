"""Invalid files, for which no fabric starts: every problem with its place and remedy.

All files go into one command: it tells every problem of all of them.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from tests.flowmesh_cli import flows
from tests.flowmesh_cli.calling import fmesh

from flowmesh_cli.exit_codes import ExitCode

HEAD = f"apiVersion: {flows.API}\nkind: FlowMeshWorkflow\nmetadata: {{name: x}}\n"
ROWS = {"rows": {"rows": [{"q": "1", "t": "1"}]}}
MODEL = {"m": {"model": "smollm2-135m-instruct"}}


def one(uses: str, params: dict[str, Any], /, **more: Any) -> dict[str, Any]:
    """Returns a workflow of one step that reads all its inputs."""
    inputs = more.pop("inputs", {})
    top = {k: more.pop(k) for k in ("params", "budgetUsd", "deadline", "priority") if k in more}
    step = {"name": "a", "uses": uses, "with": params, **more}
    if inputs:
        ports = {"m": "model"}
        step["inputs"] = {ports.get(name, name): f"inputs.{name}" for name in inputs}
    return {**top, "inputs": inputs, "steps": [step], "outputs": {}}


def sql(name: str, source: str) -> dict[str, Any]:
    return {
        "name": name,
        "uses": "data.sql",
        "inputs": {"rows": source},
        "with": {"query": "select 1 as x"},
    }


def generate(prompt: str, model: str = "smollm2-135m-instruct") -> dict[str, Any]:
    return one("llm.generate", {"prompt": prompt}, inputs={"m": {"model": model}, **ROWS})


def noop(value: Any, **more: Any) -> dict[str, Any]:
    return one("test.noop", {"value": value}, **more)


WRONG_TEXTS = {
    "bad-yaml": (HEAD + "spec: [unclosed\n", ":5:1: not YAML: expected ',' or ']'"),
    "empty": ("", ":1:1: the file holds no object"),
    "list": ("- 1\n", ":1:1: expected an object with apiVersion and kind, got a list"),
    "twice": (HEAD + "kind: FlowMeshWorkflow\n", ":4:1: kind: written twice, first on line 2"),
    "deep": (HEAD + "spec: " + "[" * 3000, "the file is nested too deeply"),
    "bomb": (
        "a: &a [x,x,x,x,x,x,x,x,x]\n"
        + "".join(
            f"{b}: &{b} [{','.join([f'*{a}'] * 9)}]\n"
            for a, b in zip("abcdefg", "bcdefgh", strict=True)
        ),
        "the file has too many values",
    ),
    "tag": ("kind: !!python/object/apply:os.system ['true']\n", ":1:7: kind: tag"),
    "policy": (
        json.dumps(
            {
                "apiVersion": flows.API,
                "kind": "FlowMeshCachePolicy",
                "metadata": {"name": "x"},
                "spec": {"scope": "groop", "group": "g", "namespaces": {"names": ["a"]}},
            }
        ),
        "spec.scope: expected one of private, group, all, got the string 'groop'; "
        "did you mean 'group'?",
    ),
}
WRONG_SPECS: dict[str, tuple[dict[str, Any], str]] = {
    "cycle": (
        {"steps": [sql("a", "b.rows"), sql("b", "a.rows")], "outputs": {}},
        "spec.steps[0]: the steps wait for each other: a → b → a",
    ),
    "engine": (
        one("data.sqll", {"query": "select 1"}),
        "spec.steps[0].uses: no engine 'data.sqll'; did you mean 'data.sql'?",
    ),
    "column": (
        one("eval.exact-match", {"prediction": "answr", "target": "t"}, inputs=ROWS),
        "spec.steps[0].with.prediction: no column 'answr' in the rows; there is q, t",
    ),
    "template": (
        generate("Q: {{ qq }}"),
        "spec.steps[0].with.prompt: the template names 'qq', and the rows have no such column; "
        "did you mean 'q'?",
    ),
    "model": (
        generate("{{ q }}", "smollm2-135m-instrct"),
        "spec.inputs.m.model: no built-in model 'smollm2-135m-instrct' (a file or directory is "
        "written ./smollm2-135m-instrct, a hub's hf://org/name); did you mean "
        "'smollm2-135m-instruct'?",
    ),
    "directory": (generate("{{ q }}", "./nowhere"), "nowhere does not exist"),
    "nobody": (generate("{{ q }}", "~nobody-of-that-name/m"), "home directory; check"),
    "long-path": (generate("{{ q }}", "./" + "x" * 5000), "File name too long; check the path"),
    "no-address": (generate("{{ q }}", "file://[::1"), "Invalid IPv6 URL; check the path"),
    "python": (
        one("code.python", {"code": "def main(:\n  pass\n"}),
        "spec.steps[0].with.code: not Python: invalid syntax on line 1 of it",
    ),
    "deep-python": (
        one("code.python", {"code": "(" * 5000 + ")" * 5000}),
        "spec.steps[0].with.code: not Python: ",
    ),
    "matrix": (
        noop("${matrix.x}", matrix={name: list(range(100)) for name in "xyz"}),
        "spec.steps[0].matrix: 1000000 instances, of at most 10000",
    ),
    "chain": (
        {
            "steps": [
                {
                    "name": f"s{i}",
                    "uses": "test.noop",
                    **({"inputs": {"a": f"s{i - 1}.metrics"}} if i else {}),
                }
                for i in range(10_001)
            ],
            "outputs": {},
        },
        "spec.steps: 10001 steps one after the other, of at most 10000",
    ),
    "names": (
        {
            "steps": [
                {"name": "../x", "uses": "test.noop"},
                {"name": "A 'B'", "uses": "test.noop"},
            ],
            "outputs": {},
        },
        "spec.steps[0].name: expected a name of letters, digits, - and _",
    ),
    "name-twice": (
        {
            "steps": [{"name": "a", "uses": "test.noop"}, {"name": "a", "uses": "test.noop"}],
            "outputs": {},
        },
        "spec.steps[1].name: 'a' is taken by spec.steps[0]",
    ),
    "brace": (
        noop("${params.x", params={"x": 1}),
        "spec.steps[0].with.value: '${params.x' has no closing brace; write $${ for a plain ${",
    ),
    "parameter": (
        noop("${params.y} ${env.HOME} ${}", params={"x": 1}),
        "spec.steps[0].with.value: no 'y' in params; there is x",
    ),
    "condition": (noop(1, when="(("), "spec.steps[0].when: '((' is not a CEL condition"),
    "condition-name": (noop(1, when="params.nope > 1"), "spec.steps[0].when: no 'nope' in params"),
    "condition-step": (
        noop(1, when="steps['zz'].rows.count > 1"),
        "spec.steps[0].when: no step 'zz'",
    ),
    "condition-deep": (
        noop(1, when="(" * 500 + "true" + ")" * 500),
        "spec.steps[0].when: the condition is nested too deeply",
    ),
    "budget": (
        noop(1, budgetUsd="-1", deadline="soon", priority="high"),
        'spec.budgetUsd: expected an amount of dollars in quotes, such as "0.50", got the string',
    ),
    "sql-syntax": (
        one("data.sql", {"query": "selec 1"}),
        'spec.steps[0].with.query: syntax error at or near "selec" at line 1',
    ),
    "sql-statement": (
        one("data.sql", {"query": "drop table rows"}, inputs=ROWS),
        "the query is not a SELECT; write one SELECT",
    ),
    "sql-file": (
        one("data.sql", {"query": "select * from '/etc/passwd'"}),
        "there is no table '/etc/passwd' at line 1",
    ),
    "rows": (
        one(
            "data.sql", {"query": "select 1"}, inputs={"rows": {"rows": [{"a": "x" * 1000}] * 9000}}
        ),
        "put them into a file and write dataset: ./file.jsonl",
    ),
}


@pytest.fixture(scope="module")
def refused(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Returns the output of one command on all files."""
    folder = tmp_path_factory.mktemp("refused")
    for name, (text, _) in WRONG_TEXTS.items():
        (folder / f"{name}.yaml").write_text(text)
    for name, (spec, _) in WRONG_SPECS.items():
        flows.write(folder, name, spec)
    files = sorted(folder.glob("*.yaml"))
    done = fmesh("run", *files, cwd=folder)
    assert done.returncode == ExitCode.USAGE
    assert "Traceback" not in done.stderr
    assert done.stderr.endswith("problems; nothing was started\n")
    assert not (folder / ".flowmesh").exists()
    return done.stderr


@pytest.mark.parametrize("name", [*WRONG_TEXTS, *WRONG_SPECS])
def test_an_invalid_file_is_reported_with_location_reason_and_remedy(
    refused: str, name: str
) -> None:
    wanted = {**WRONG_TEXTS, **WRONG_SPECS}[name][1]
    lines = [line for line in refused.splitlines() if f"/{name}.yaml:" in line]
    assert any(wanted in line for line in lines), lines


def test_a_binary_or_missing_file_is_reported(tmp_path: Path) -> None:
    (tmp_path / "binary.yaml").write_bytes(b"\xff\x00")
    binary = fmesh("run", "binary.yaml", cwd=tmp_path)
    assert binary.returncode == ExitCode.USAGE
    assert "error: binary.yaml: not UTF-8 at byte 0\nremedy: save it as UTF-8" in binary.stderr
    gone = fmesh("run", "gone.yaml", cwd=tmp_path)
    assert gone.returncode == ExitCode.USAGE
    assert "gone.yaml: cannot be read: No such file" in gone.stderr
