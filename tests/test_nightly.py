"""The page of long jobs: one row a job, of its last run, whether it passed or not."""

import os
import sys
import time
from pathlib import Path

import pytest
from hack import nightly
from hack.nightly import (
    JOBS,
    Job,
    Outcome,
    chosen,
    column,
    last_line,
    line_from,
    line_with,
    page,
    row,
    run,
)


def job(name: str = "paper", limit_s: float = 60.0) -> Job:
    return Job(name, (sys.executable, "-c", "print('done')"), limit_s, last_line)


def row_of(name: str, outcome: Outcome) -> str:
    return row(job(name), outcome, commit="abc", date="2026-01-02")


PASSED = Outcome(0, 12.4, ["making it", "3 of 3"])
FAILED = Outcome(2, 1.6, ["3 of 3 | broken", "make: *** [Makefile:1: x] Error 1"])


def test_a_row_has_the_commit_the_date_the_time_the_result_and_the_figures() -> None:
    assert row_of("paper", PASSED) == "| `paper` | abc | 2026-01-02 | 12 | passed | 3 of 3 |"


def test_a_failed_job_is_reported_with_its_last_output() -> None:
    found = row_of("paper", FAILED)
    assert "| **failed**: exit code 2 | 3 of 3 \\| broken |" in found


def test_a_job_stopped_at_its_limit_has_failed_with_that_limit() -> None:
    assert "| **failed**: stopped after 60 s |" in row_of("paper", Outcome(None, 61.0, []))


def test_a_job_that_exits_with_0_and_prints_that_it_missed_its_goal_has_failed() -> None:
    bounded = Job("attacks", ("true",), 60.0, last_line, refuted="not held by")
    missed = Outcome(0, 1.0, ["**not held by: uploads**", "the end"])
    assert "| **failed**: not held by |" in row(bounded, missed, commit="abc", date="2026-01-02")
    assert bounded.failure(Outcome(0, 1.0, ["all held"])) == ""
    assert job().failure(missed) == ""


def test_rows_of_jobs_that_did_not_run_remain_and_the_others_are_replaced() -> None:
    first = page("", [row_of("paper", PASSED), row_of("former", PASSED)])
    second = page(first, [row_of("paper", FAILED), row_of("soak-0-999", PASSED)])
    lines = second.splitlines()
    assert lines[-3:] == [
        row_of("soak-0-999", PASSED),
        row_of("paper", FAILED),
        row_of("former", PASSED),
    ]
    assert page(second, []) == second


def test_long_figures_are_cut() -> None:
    found = row_of("paper", Outcome(0, 1.0, ["x" * 1000]))
    assert found.endswith("x… |")
    assert len(found) < 400


def test_figures_are_those_that_the_job_names() -> None:
    soak = ["9 of 10 seeds after 20 s", "10 seeds, 3 runs in 2 s; 1 broken: [4]", "see one again"]
    assert line_with(" broken: ")(soak) == soak[1]
    failed = ["kills: 20; 3 right", '    f"kills: {moments}; {right} right"']
    assert line_from("kills")(failed) == failed[0]
    table = ["| shape | a | / Ray |", "| --- | --- | --- |", "| flat | 1 | 2.6 |", "", "| x | y |"]
    assert column("/ Ray")(["before", *table]) == "/ Ray: flat 2.6"
    assert column("absent")(table) == ""
    tick = ["fleet   ready  median ms", "cold      10       2.5"]
    assert nightly.last_row(tick) == "fleet cold, ready 10, median ms 2.5"


def test_jobs_are_chosen_by_name_and_by_group() -> None:
    assert chosen([]) == list(JOBS)
    assert [j.name for j in chosen(["bench", "paper"])] == [
        "paper",
        "paper-serving",
        "bench-dispatch",
        "bench-tick",
    ]
    assert len(chosen(["soak"])) == 10
    assert [j.name for j in chosen(["soak-1000-1999"])] == ["soak-1000-1999"]
    with pytest.raises(ValueError, match="no job 'sok'; there are soak, paper"):
        chosen(["sok"])


def test_the_ranges_of_seeds_follow_each_other() -> None:
    named = [j.name.split("-")[1:] for j in chosen(["soak"])]
    assert [int(first) for first, _ in named] == [0, *(int(last) + 1 for _, last in named[:-1])]
    assert int(named[-1][1]) == 9999


def test_a_job_runs_with_its_output_in_a_log(tmp_path: Path) -> None:
    outcome = run(job(), tmp_path / "logs" / "paper.log")
    assert (outcome.code, outcome.lines) == (0, ["done"])


def test_a_job_is_ended_at_its_limit_with_all_its_processes(tmp_path: Path) -> None:
    words = "import subprocess, sys; subprocess.run(['cat', sys.argv[1]])"
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)  # it waits for a writer for ever
    waits = Job("waits", (sys.executable, "-c", words, str(pipe)), 0.5, last_line)
    assert run(waits, tmp_path / "log").code is None
    deadline = time.monotonic() + 30  # the kernel ends them when it comes to it
    while readers := [p for p in Path("/proc").glob("[0-9]*/cmdline") if _reads(p, pipe)]:
        assert time.monotonic() < deadline, readers


def _reads(process: Path, pipe: Path) -> bool:
    try:
        return str(pipe).encode() in process.read_bytes()
    except OSError:
        return False


def test_the_repositorys_page_equals_its_generated_form() -> None:
    text = nightly.PAGE.read_text()
    assert page(text, []) == text


def test_the_tests_of_serving_that_jobs_name_are_there() -> None:
    jobs = [job for job in chosen(["serving"]) if "test-nightly" in job.command]
    assert [job.name.removeprefix("serving-") for job in jobs] == [*nightly.SERVING]
    for job in jobs:
        path, _, name = job.command[-1].removeprefix("ARGS=-s ").partition("::")
        assert f"async def {name}(" in (nightly.ROOT / path).read_text()
