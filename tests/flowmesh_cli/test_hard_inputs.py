"""Hard inputs on one running fabric: each a clear end, and the fabric serves on after every one."""

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from tests.flowmesh_cli import flows
from tests.flowmesh_cli.calling import COMMAND, answer, environment, fmesh, until
from tests.flowmesh_cli.shared_fabric import SharedFabric, shared_fabric

from flowmesh_cli.exits import ExitCode

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture(scope="module")
def fabric(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedFabric]:
    with shared_fabric(tmp_path_factory.mktemp("hard")) as found:
        yield found


@dataclass(frozen=True)
class Case:
    """A step that fails, its kind of failure, and what the user reads: reason and remedy."""

    uses: str
    params: dict[str, Any]
    kind: str
    reason: str
    remedy: str
    rows: list[dict[str, Any]] | None = None
    timeout: str = ""


def sql(query: str, reason: str, remedy: str, **more: Any) -> Case:
    return Case("data.sql", {"query": query}, more.pop("kind", "bad-input"), reason, remedy, **more)


def python(body: str, reason: str, remedy: str, kind: str = "user-code", **params: Any) -> Case:
    code = f"import os, sys, time\ndef main():\n  {body}\n"
    return Case("code.python", {"code": code, **params}, kind, reason, remedy)


LOOK = "look at the lines above"
MEND = "mend with.query"
PLAIN = "return strings, finite numbers"
MAY_EXIT = "it may have called os._exit()"
CASES = {
    "an SQL syntax error": sql("selec 1", 'syntax error at or near "selec" at line 1', MEND),
    "a column that SQL does not find": sql(
        "select nope from rows", 'Referenced column "nope" not found', MEND, rows=[{"q": "1"}]
    ),
    "an SQL error on the data": sql(
        "select cast('x' as int) as v", "Could not convert string 'x' to INT32 (line 1", MEND
    ),
    "SQL that is no SELECT": sql("drop table rows", "the query is no SELECT", "write one SELECT"),
    "SQL that reads a file": sql(
        "select * from '/etc/passwd'", "there is no table '/etc/passwd'", "an input's name"
    ),
    "two columns of one name": sql(
        "select 1 as x, 2 as x",
        "the result has 'x' more than once",
        "give each column a name of its own",
    ),
    "SQL that gives NaN": sql(
        "select 'nan'::double as a", "row 1, column 'a': nan is no float", "mend the value"
    ),
    "SQL that never ends": sql(
        "with recursive t(n) as (select 1 union all select n + 1 from t) select count(*) from t",
        "the attempt ran longer than its 1 s",
        "raise the step's timeout",
        kind="timeout",
        timeout="1s",
    ),
    "columns that differ in case alone": sql(
        "select * from rows",
        "input 'rows' has the columns 'A' and 'a', which are one in SQL",
        "rename one of them",
        rows=[{"A": 1, "a": 2}],
    ),
    "a column that no row has": sql(
        "select x from rows", 'Referenced column "x" not found', "input 'rows' has no rows", rows=[]
    ),
    "Python that loops for ever": python(
        "while True: pass",
        "the code ran longer than its 1 s",
        "raise with.timeoutS",
        "timeout",
        timeoutS=1,
    ),
    "Python that raises": python("return 1 / 0", "ZeroDivisionError: division by zero", LOOK),
    "Python without its function": Case(
        "code.python", {"code": "x = 1"}, "user-code", "defines no function main()", "define it"
    ),
    "Python that returns a number": python(
        "return 5", "main() returned int, not a list of rows", "return a list of dicts"
    ),
    "Python that returns NaN": python(
        "return [{'a': float('nan')}]", "row 1, column 'a': nan is no float", "mend the value"
    ),
    "Python that returns what is no JSON": python(
        "return [{'a': object()}]", "a value that no column can hold", PLAIN
    ),
    "Python that returns too large an integer": python(
        "return [{'a': 2 ** 80}]", "a value that no column can hold", PLAIN
    ),
    "Python that returns itself": python(
        "x = []; x.append(x); return [{'a': x}]", "a value that no column can hold", PLAIN
    ),
    "Python that mixes types": python(
        "return [{'a': 1}, {'a': 'x'}]", "column 'a': mixed types", "write one type in all rows"
    ),
    "Python that forks for ever": python(
        "while True: os.fork()", "Resource temporarily unavailable", LOOK, timeoutS=5
    ),
    "Python that wants too much memory": python(
        "x = bytearray(4 << 30)", "the code used more than its 512 MiB", "raise with.memoryMib"
    ),
    "Python that leaves without an answer": python(
        "os._exit(0)", "ended with code 0 before main() returned", MAY_EXIT
    ),
    "Python that crashes": python(
        "import ctypes; ctypes.string_at(0)", "was ended by SIGSEGV before main()", MAY_EXIT
    ),
    "an engine that crashes": Case(
        "test.fail",
        {"kind": "crash"},
        "poison",
        "ended its engine host or worker 3 times",
        "look at",
    ),
    "an engine that hangs": Case(
        "test.fail",
        {"kind": "hang"},
        "timeout",
        "the attempt ran longer than its 1 s",
        "raise the step's timeout",
        timeout="1s",
    ),
    "an engine that fails": Case(
        "test.fail", {"kind": "bad-input", "message": "no good"}, "bad-input", "no good", ""
    ),
}


def workflow(case: Case) -> dict[str, Any]:
    step: dict[str, Any] = {"name": "hard", "uses": case.uses, "with": case.params}
    spec: dict[str, Any] = {"steps": [step], "outputs": {}}
    if case.rows is not None:
        spec["inputs"] = {"rows": {"rows": case.rows}}
        step["inputs"] = {"rows": "inputs.rows"}
    if case.timeout:
        step["timeout"] = case.timeout
    return spec


@pytest.fixture(scope="module")
def told(fabric: SharedFabric) -> dict[str, str]:
    """What one command says of each hard workflow; a good one runs beside every one of them."""
    files = []
    for number, case in enumerate(CASES.values()):
        files.append(flows.write(fabric.folder, f"hard-{number}", workflow(case)))
        good = {"steps": [{"name": "a", "uses": "data.sql", "with": {"query": f"select {number}"}}]}
        files.append(flows.write(fabric.folder, f"good-{number}", {**good, "outputs": {}}))
    done = fmesh("run", *files, cwd=fabric.folder, timeout_s=200)
    assert done.returncode == ExitCode.FAILED
    for number in range(len(CASES)):
        assert f"team-a/good-{number} Succeeded" in done.stderr
    ends = re.split(r"\nteam-a/hard-(\d+) failed in step hard: ", done.stderr)
    return {name: ends[ends.index(str(n)) + 1] for n, name in enumerate(CASES)}


@pytest.mark.parametrize("name", CASES)
def test_a_step_that_cannot_work_ends_with_step_reason_and_remedy(
    told: dict[str, str], name: str
) -> None:
    case, said = CASES[name], told[name]
    assert said.splitlines()[0] == case.kind
    assert case.reason in said
    assert f"  try: {case.remedy}" in said or not case.remedy
    assert "flowmesh_worker" not in said, "a traceback of ours"


def test_all_hard_steps_together_leave_the_fabric_serving(
    fabric: SharedFabric, told: dict[str, str]
) -> None:
    assert len(told) == len(CASES)
    fabric.still_serves()


def test_a_condition_that_fails_is_told_in_words(fabric: SharedFabric) -> None:
    step = {"name": "hard", "uses": "test.noop", "when": "1 / params.zero > 1"}
    done = fabric.run({"params": {"zero": 0}, "steps": [step], "outputs": {"o": "hard.metrics"}})
    assert done.returncode == ExitCode.FAILED
    assert "the condition '1 / params.zero > 1' failed: modulus or divide by zero\n" in done.stderr
    assert "output o" not in done.stdout
    fabric.still_serves()


NOWHERE = {
    "a hub that is out of reach": (
        {"model": "hf://nobody/nothing"},
        "may not reach the hub (HF_HUB_OFFLINE is set)",
        "use builtin:",
    ),
    "a server inside": (
        {"dataset": "https://127.0.0.1:1/x.jsonl"},
        "is not a public address",
        "upload the file",
    ),
}


@pytest.mark.parametrize("name", NOWHERE)
def test_an_input_that_cannot_be_had_is_told(fabric: SharedFabric, name: str) -> None:
    source, reason, remedy = NOWHERE[name]
    spec: dict[str, Any] = {"inputs": {"x": source, "r": {"rows": [{"q": "1"}]}}, "outputs": {}}
    generate = {"inputs": {"model": "inputs.x", "rows": "inputs.r"}, "with": {"prompt": "{{ q }}"}}
    read = {"inputs": {"rows": "inputs.x"}, "with": {"query": "select 1 as x"}}
    spec["steps"] = [
        {"name": "a", "uses": "llm.generate", **generate}
        if "model" in source
        else {"name": "a", "uses": "data.sql", **read}
    ]
    done = fabric.run(spec)
    assert done.returncode == ExitCode.FAILED
    assert "failed in step inputs.x.pin: bad-input" in done.stderr
    assert reason in done.stderr
    assert f"try: {remedy}" in done.stderr
    fabric.still_serves()


def test_columns_known_only_at_the_worker_are_missed_before_the_engine_loads(
    fabric: SharedFabric,
) -> None:
    model = fabric.folder / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")  # no engine could load this
    first = {
        "name": "first",
        "uses": "data.sql",
        "with": {"query": "select 'x' as question, 'y' as target"},
    }
    rows = {"inputs": {"rows": "first.rows"}}
    wants = {
        "prompt": {
            "uses": "llm.generate",
            "inputs": {"model": "inputs.m", "rows": "first.rows"},
            "with": {"prompt": "{{ question }} {{ hint }}"},
        },
        "prediction": {
            "uses": "eval.exact-match",
            **rows,
            "with": {"prediction": "hint", "target": "target"},
        },
    }
    for place, step in wants.items():
        inputs = {"m": {"model": "./model"}} if place == "prompt" else {}
        spec = {"inputs": inputs, "steps": [first, {"name": "a", **step}], "outputs": {}}
        done = fabric.run(spec)
        assert done.returncode == ExitCode.FAILED
        wanted = f"with.{place} names 'hint', and input 'rows' has no such column\n"
        assert wanted + "  try: its columns are question, target\n" in done.stderr
    fabric.still_serves()


@pytest.mark.parametrize("source", ["inline", "file", "sql", "python"])
def test_no_rows_pass_through_every_engine(fabric: SharedFabric, source: str) -> None:
    (fabric.folder / "none.jsonl").write_text("")
    inputs = {"inline": {"rows": []}, "file": {"dataset": "./none.jsonl"}}.get(source)
    makes = {
        "sql": {"uses": "data.sql", "with": {"query": "select 'a' as p, 'b' as t where false"}},
        "python": {"uses": "code.python", "with": {"code": "def main():\n  return []"}},
    }
    rows = "inputs.rows" if inputs else "made.rows"
    read = {"inputs": {"rows": rows}}
    steps = [
        {"name": "all", "uses": "data.sql", **read, "with": {"query": "select * from rows"}},
        {
            "name": "count",
            "uses": "data.sql",
            **read,
            "with": {"query": "select count(*) as n from rows"},
        },
        {
            "name": "map",
            "uses": "test.map",
            "inputs": {"rows": "all.rows"},
        },
        {
            "name": "code",
            "uses": "code.python",
            "inputs": {"rows": "map.rows"},
            "with": {"code": "def main(rows):\n  return [*rows, *rows]"},
        },
        {
            "name": "score",
            "uses": "eval.exact-match",
            "inputs": {"rows": "code.rows"},
            "with": {"prediction": "p", "target": "t"},
        },
    ]
    if not inputs:
        steps.insert(0, {"name": "made", **makes[source]})
    spec = {
        "inputs": {"rows": inputs} if inputs else {},
        "steps": steps,
        "outputs": {"rows": "code.rows", "count": "count.rows", "score": "score.metrics"},
    }
    run = fabric.answer(spec, name=f"none-{source}")
    assert run["outputs"]["score"]["value"] == {"accuracy": 0.0, "count": 0}
    into = fabric.folder / f"none-{source}"
    for form in ("jsonl", "parquet"):
        told = fmesh("outputs", run["uid"], "--download", into, "--format", form, cwd=fabric.folder)
        assert told.returncode == 0, told.stderr
    assert (into / "rows.jsonl").read_text() == ""
    assert (into / "count.jsonl").read_text() == '{"n":0}\n'
    assert (into / "rows.parquet").read_bytes()[:4] == b"PAR1"
    fabric.still_serves()


def test_one_row_of_five_megabytes_passes_whole(fabric: SharedFabric) -> None:
    row = {"q": "é" * 2_500_000, "t": "x"}
    (fabric.folder / "large.jsonl").write_text(json.dumps(row, ensure_ascii=False) + "\n")
    code = "def main(rows):\n  return [{**r, 'size': len(r['q'])} for r in rows]"
    spec = {
        "inputs": {"rows": {"dataset": "./large.jsonl"}},
        "steps": [
            {
                "name": "sql",
                "uses": "data.sql",
                "inputs": {"rows": "inputs.rows"},
                "with": {"query": "select q, t from rows"},
            },
            {"name": "map", "uses": "test.map", "inputs": {"rows": "sql.rows"}},
            {
                "name": "code",
                "uses": "code.python",
                "inputs": {"rows": "map.rows"},
                "with": {"code": code},
            },
        ],
        "outputs": {"rows": "code.rows"},
    }
    run = fabric.answer(spec, name="large")
    fmesh("outputs", run["uid"], "--download", fabric.folder / "out", cwd=fabric.folder)
    (found,) = (fabric.folder / "out" / "rows.jsonl").read_text().splitlines()
    assert json.loads(found).items() >= {**row, "size": 2_500_000}.items()
    fabric.still_serves()


def test_odd_names_values_and_much_output_are_no_trouble(fabric: SharedFabric) -> None:
    odd = {"naïve \"q\" 'x'": "1", "列": "é\n\x00", "select": None, "A": 1}
    quote = "'; drop table rows; --"
    steps = [
        {
            "name": "sql",
            "uses": "data.sql",
            "inputs": {"rows": "inputs.rows"},
            "with": {"query": "select * from rows"},
        },
        {
            "name": "code",
            "uses": "code.python",
            "inputs": {"rows": "sql.rows"},
            "with": {
                "code": "def main(rows, said):\n"
                "  for _ in range(100):\n    print('x' * 1_000_000)\n"
                "  return [{**r, 'said': said} for r in rows]",
                "args": {"said": "${params.quote} $${params.quote} {{ 7 * 7 }}"},
            },
        },
        {
            "name": "many",
            "uses": "data.sql",
            "with": {"query": "select range as i, 'row ' || range as t from range(200000)"},
        },
    ]
    spec = {
        "params": {"quote": quote},
        "inputs": {"rows": {"rows": [odd]}},
        "steps": steps,
        "outputs": {"rows": "code.rows", "many": "many.rows"},
    }
    run = fabric.answer(spec, name="odd")
    assert run["outputs"]["many"]["rows"] == 200_000
    into = fabric.folder / "odd"
    fmesh("outputs", run["uid"], "--download", into, cwd=fabric.folder)
    (found,) = (into / "rows.jsonl").read_text().splitlines()
    assert json.loads(found) == {**odd, "said": f"{quote} ${{params.quote}} {{{{ 7 * 7 }}}}"}
    fabric.still_serves()


def test_links_in_an_uploaded_directory_are_followed_by_no_one_but_its_owner(
    fabric: SharedFabric,
) -> None:
    model = fabric.folder / "linked"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "gone").symlink_to("/nowhere/at/all")
    (model / "round").symlink_to(".")
    spec = {
        "inputs": {"m": {"model": "./linked"}, "r": {"rows": [{"q": "1"}]}},
        "steps": [
            {
                "name": "a",
                "uses": "llm.generate",
                "inputs": {"model": "inputs.m", "rows": "inputs.r"},
                "with": {"prompt": "{{ q }}"},
            }
        ],
        "outputs": {},
    }
    done = fabric.run(spec)
    assert done.returncode == ExitCode.FAILED
    assert "the model has no *.safetensors files" in done.stderr
    fabric.still_serves()


def test_many_cancel_one_run_at_once_and_nothing_runs_on(fabric: SharedFabric) -> None:
    step = {
        "name": "nap",
        "uses": "test.sleep",
        "matrix": {"n": list(range(20))},
        "with": {"seconds": 60, "value": "${matrix.n}"},
    }
    flow = flows.write(fabric.folder, "many", {"steps": [step], "outputs": {}})
    (accepted,) = answer("submit", flow, cwd=fabric.folder)
    uid = accepted["uid"]
    until(lambda: fabric.call("GET", "/v1/fabric")["running_actions"] >= 20)
    together = [
        subprocess.Popen(
            [*COMMAND, "cancel", uid],
            cwd=fabric.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
        )
        for _ in range(3)
    ]
    ended = {process.wait(60): process.communicate() for process in together}
    assert set(ended) <= {ExitCode.OK, ExitCode.NOT_FOUND}
    assert ExitCode.OK in ended
    assert fabric.phase(uid) == "Cancelled"
    again = fmesh("cancel", uid, cwd=fabric.folder)
    assert again.returncode == ExitCode.NOT_FOUND
    assert f"{uid} has ended already: Cancelled" in again.stderr
    until(lambda: fabric.call("GET", "/v1/fabric")["running_actions"] == 0)
    fabric.still_serves()
