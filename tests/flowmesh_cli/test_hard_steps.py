"""Failing steps on one running fabric: each ends clearly, and the fabric serves on."""

import re
from dataclasses import dataclass
from typing import Any

import pytest
from tests.flowmesh_cli import flows
from tests.flowmesh_cli.calling import fmesh
from tests.flowmesh_cli.shared_fabric import SharedFabric

from flowmesh_cli.exit_codes import ExitCode

pytestmark = pytest.mark.slow


@dataclass(frozen=True)
class Case:
    """A failing step, its kind of failure, and the reason and remedy that users read."""

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


LOOK = "see the traceback"
MEND = "correct with.query"
PLAIN = "return strings, finite numbers"
MAY_EXIT = "it may have called os._exit()"
CASES = {
    "an SQL error on the data": sql(
        "select cast('x' as int) as v", "Could not convert string 'x' to INT32 (line 1", MEND
    ),
    "SQL that gives NaN": sql(
        "select 'nan'::double as a",
        "row 1, column 'a': nan is not of type float",
        "correct the value",
    ),
    "SQL that never ends": sql(
        "with recursive t(n) as (select 1 union all select n + 1 from t) select count(*) from t",
        "the attempt ran longer than your step's timeout of 1 s",
        "raise the step's timeout",
        kind="timeout",
        timeout="1s",
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
        "return [{'a': float('nan')}]",
        "row 1, column 'a': nan is not of type float",
        "correct the value",
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
        "find the row",
    ),
    "an engine that hangs": Case(
        "test.fail",
        {"kind": "hang"},
        "timeout",
        "the attempt ran longer than your step's timeout of 1 s",
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
    """Returns the output for each failing workflow; a good one runs beside each."""
    files = []
    for number, case in enumerate(CASES.values()):
        files.append(flows.write(fabric.folder, f"hard-{number}", workflow(case)))
        good = {"steps": [{"name": "a", "uses": "data.sql", "with": {"query": f"select {number}"}}]}
        files.append(flows.write(fabric.folder, f"good-{number}", {**good, "outputs": {}}))
    done = fmesh("run", *files, cwd=fabric.folder, timeout_s=1000)
    assert done.returncode == ExitCode.FAILED
    for number in range(len(CASES)):
        assert f"team-a/good-{number} Succeeded" in done.stderr
    ends = re.split(r"\nteam-a/hard-(\d+) failed in step hard: ", done.stderr)
    return {name: ends[ends.index(str(n)) + 1] for n, name in enumerate(CASES)}


@pytest.mark.parametrize("name", CASES)
def test_a_step_that_cannot_run_fails_with_step_reason_and_remedy(
    told: dict[str, str], name: str
) -> None:
    case, said = CASES[name], told[name]
    assert said.splitlines()[0] == case.kind
    assert case.reason in said
    assert f"  try: {case.remedy}" in said or not case.remedy
    assert "flowmesh_worker" not in said, "a traceback of ours"


def test_the_fabric_keeps_serving_after_all_hard_steps_together(
    fabric: SharedFabric, told: dict[str, str]
) -> None:
    assert len(told) == len(CASES)
    fabric.still_serves()


@pytest.mark.parametrize(
    ("query", "row", "reason"),
    [
        ("select nope from rows", {"q": "1"}, 'Referenced column "nope" not found'),
        ("select 1 as x, 2 as x", {"q": "1"}, "the result has 'x' more than once"),
        ("select * from rows", {"A": 1, "a": 2}, "'A' and 'a', which are one in SQL"),
    ],
)
def test_a_query_that_cannot_work_is_refused_before_anything_runs(
    fabric: SharedFabric, query: str, row: dict[str, Any], reason: str
) -> None:
    done = fabric.run(workflow(sql(query, "", "", rows=[row])))
    assert done.returncode == ExitCode.USAGE
    assert reason in done.stderr
    assert not done.stdout


def test_a_failed_condition_is_reported_in_plain_words(fabric: SharedFabric) -> None:
    step = {"name": "hard", "uses": "test.noop", "when": "1 / params.zero > 1"}
    done = fabric.run({"params": {"zero": 0}, "steps": [step], "outputs": {"o": "hard.metrics"}})
    assert done.returncode == ExitCode.FAILED
    assert "the condition '1 / params.zero > 1' failed: modulus or divide by zero\n" in done.stderr
    assert "output o" not in done.stdout
    fabric.still_serves()
