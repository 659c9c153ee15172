"""``kill -9`` at many moments, then the same command: same outputs, nothing published runs again.

A moment is a number of published actions, and somewhere before the next one.
"""

import contextlib
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.flowmesh_cli import flows
from tests.flowmesh_cli.calling import answer, end_workers, owner, started, until
from tests.flowmesh_cli.test_receipts_of_epochs import assert_the_books_agree
from tests.flowmesh_store.published import published

pytestmark = pytest.mark.slow

CODE = """
def main(rows):
    return [{**row, "answer": str(int(row["question"]) % 20)} for row in rows]
"""


def flow(extra: int) -> dict[str, Any]:
    """Ten actions: SQL, Python, chunks, waits; ``extra`` makes the tail this tenant's own."""
    tail = f"select question, target, answer, {extra} as tail from rows order by all"
    return {
        "inputs": {"questions": {"dataset": "./questions.jsonl"}},
        "steps": [
            {
                "name": "pick",
                "uses": "data.sql",
                "inputs": {"rows": "inputs.questions"},
                "with": {"query": "select question, target from rows order by all"},
            },
            {
                "name": "code",
                "uses": "code.python",
                "inputs": {"rows": "pick.rows"},
                "with": {"code": CODE},
            },
            {
                "name": "wait",
                "uses": "test.sleep",
                "matrix": {"n": [1, 2, 3]},
                "with": {"seconds": 0.3, "value": "${matrix.n}"},
            },
            {
                "name": "tail",
                "uses": "data.sql",
                "inputs": {"rows": "code.rows"},
                "with": {"query": tail},
            },
            {
                "name": "score",
                "uses": "eval.exact-match",
                "inputs": {"rows": "tail.rows"},
                "with": {"prediction": "answer", "target": "target"},
            },
        ],
        "outputs": {"rows": "tail.rows", "accuracy": "score.metrics"},
    }


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Writes three tenants' overlapping workflows and their policy."""
    flows.questions(tmp_path, rows=60)
    for n, team in enumerate("abc"):
        flows.write(tmp_path, f"flow-{team}", flow(n), namespace=f"team-{team}")
    flows.policy(tmp_path, "team-a", "team-b", "team-c")
    yield tmp_path
    end_workers(tmp_path)


COMMAND = ("run", "flow-a.yaml", "flow-b.yaml", "flow-c.yaml", "policy.yaml")


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    """Returns the outputs of an undisturbed run."""
    folder = tmp_path_factory.mktemp("undisturbed")
    flows.questions(folder, rows=60)
    for n, team in enumerate("abc"):
        flows.write(folder, f"flow-{team}", flow(n), namespace=f"team-{team}")
    flows.policy(folder, "team-a", "team-b", "team-c")
    return outputs(answer(*COMMAND, cwd=folder))


def outputs(answered: dict[str, Any]) -> list[dict[str, str]]:
    return [{n: o["digest"] for n, o in run["outputs"].items()} for run in answered["runs"]]


def results(folder: Path) -> dict[str, bytes]:
    """Returns every published record, by scope and action."""
    return {name: record.data for name, record in published(folder / ".flowmesh").items()}


def epoch(folder: Path) -> int:
    """Returns the current epoch; 0 before the first."""
    begun = (folder / ".flowmesh" / "epochs").glob("*")
    return max((int(path.name) for path in begun if path.name.isdigit()), default=0)


def ran_again(folder: Path, before: dict[str, bytes], killed_in: int) -> list[str]:
    """Returns actions published before the kill that a later epoch published or paid again."""
    again = []
    for segment in (folder / ".flowmesh" / "runs").glob("*/ledger/*"):
        for line in filter(None, segment.read_bytes().splitlines()):
            said = json.loads(line)
            if said.get("type") != "attempt" or said["outcome"] not in ("published", "adopted"):
                continue
            scope, action, number = said["attempt_id"].split("/")
            if f"{scope}/{action}" in before and int(number.partition("-")[0]) > killed_in:
                again.append(said["attempt_id"])
    return again


def children(pid: int, marker: str) -> list[psutil.Process]:
    found = []
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if marker in " ".join(child.cmdline()):
                    found.append(child)
    return found


# Rising, so that later kills hit control processes that took the runs up themselves.
@pytest.mark.parametrize(
    "counts",
    [
        (0, 4, 8, 12),
        *(pytest.param(n, marks=pytest.mark.nightly) for n in ((1, 5, 9), (2, 6, 10), (3, 7, 11))),
    ],
)
def test_runs_survive_a_kill_of_the_control_process_at_any_moment(
    folder: Path, expected: list[dict[str, str]], counts: tuple[int, ...]
) -> None:
    kills = []
    for count in counts:
        with started(*COMMAND, cwd=folder) as run:
            until(lambda n=count: len(results(folder)) >= n or run.process.poll() is not None)
            if count == 0:
                until((folder / ".flowmesh" / "runs").exists)
            run.kill()
        kills.append((epoch(folder), results(folder)))
    again = answer(*COMMAND, cwd=folder)
    assert outputs(again) == expected
    assert [run["phase"] for run in again["runs"]] == ["Succeeded"] * 3
    after = results(folder)
    for killed_in, before in kills:
        assert {name: after[name] for name in before} == before, "a published record was replaced"
        assert ran_again(folder, before, killed_in) == []
    fabric = again["fabric"]
    assert fabric["bill_nanousd"] == fabric["receipts_nanousd"] + fabric["fabric_nanousd"]
    assert_the_books_agree(answer("receipt", "--all", cwd=folder))


# Twice in a run: an action that loses its host or its worker three times is given up.
@pytest.mark.parametrize(
    "kills",
    [
        {0: "host", 3: "worker"},
        pytest.param({2: "worker", 6: "host"}, marks=pytest.mark.nightly),
    ],
)
def test_runs_survive_kills_of_workers_and_hosts_at_any_moment(
    folder: Path, expected: list[dict[str, str]], kills: dict[int, str]
) -> None:
    befores = []
    with started(*COMMAND, "--json", cwd=folder) as run:
        for count, victim in kills.items():
            until(lambda n=count: len(results(folder)) >= n)
            until(lambda v=victim: killed(folder, v))
            befores.append(results(folder))
        assert run.end(120) == 0, run.said
    again = answer(*COMMAND, cwd=folder)
    assert outputs(again) == expected
    after = results(folder)
    for before in befores:
        assert {name: after[name] for name in before} == before


def killed(folder: Path, victim: str) -> bool:
    """Kills a local worker or its engine host, if there is one."""
    pids = list(owner(folder).get("workers", {}).values())
    if victim == "host":
        pids = [host.pid for w in pids for host in children(w, "flowmesh_worker.host")]
    with contextlib.suppress(ProcessLookupError):
        for pid in pids[:1]:
            os.kill(pid, signal.SIGKILL)
            return True
    return False
