"""Runs what is too long for CI, each job with a time limit, and writes ``docs/nightly.md``.

``make nightly`` runs all jobs, ``make nightly JOBS="soak bench"`` those of these names or groups.
The page has one row a job: its last run. The row of a job that failed says so, and rows of jobs
that do not run now stay as they are. What a job printed is below ``.cache/nightly``.
"""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "nightly.md"
LOGS = ROOT / ".cache" / "nightly"
COLUMNS = ("job", "commit", "date", "seconds", "result", "figures")
INTRODUCTION = """# Long jobs

What takes too long for `.ci/run`, written by `make nightly`: the last run of each job. A `+` after
a commit stands for uncommitted changes. A job that is not in the table has not been run.
"""
_FIGURES_CHARS = 300
_GRACE_S = 30.0
_ROW = re.compile(r"^\| `([^`]+)` \|.*\|$", re.MULTILINE)

Figures = Callable[[Sequence[str]], str]
"""What of the lines that a job printed goes into the table."""


@dataclass(frozen=True, slots=True)
class Job:
    """A command that may take long.

    Attributes:
        name: in the table; its part before the first ``-`` is its group.
        command: run in the root of the repository.
        limit_s: after so long it is ended, and has failed.
        refuted: words that a job prints which ends with 0 and did not reach its goal.
    """

    name: str
    command: tuple[str, ...]
    limit_s: float
    figures: Figures
    refuted: str = ""

    def failure(self, outcome: "Outcome") -> str:
        """Why the job has failed; empty where it has not."""
        if outcome.code is None:
            return f"stopped after {self.limit_s:.0f} s"
        if outcome.code:
            return f"exit code {outcome.code}"
        refuted = self.refuted and any(self.refuted in line for line in outcome.lines)
        return self.refuted if refuted else ""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a job.

    Attributes:
        code: its exit code; None where it was stopped at its limit.
    """

    code: int | None
    seconds: float
    lines: Sequence[str]


def last_line(lines: Sequence[str]) -> str:
    """The last line that the job itself printed, and not make."""
    return next((x for x in reversed(lines) if x.strip() and not x.startswith("make")), "")


def line_with(words: str) -> Figures:
    """The last line that these words are in."""
    return lambda lines: next((x for x in reversed(lines) if words in x), "")


def line_from(words: str) -> Figures:
    """The last line that begins with these words, which a traceback may also show, indented."""
    return lambda lines: next((x for x in reversed(lines) if x.startswith(words)), "")


def column(name: str) -> Figures:
    """A column of the first Markdown table that has it, each value after its row's first cell."""

    def found(lines: Sequence[str]) -> str:
        at = next((n for n, x in enumerate(lines) if name in _cells(x)), len(lines))
        rows = []
        for line in lines[at + 2 :]:
            if not line.startswith("|"):
                break
            rows.append(f"{_cells(line)[0]} {_cells(line)[_cells(lines[at]).index(name)]}")
        return f"{name}: {', '.join(rows)}" if rows else ""

    return found


def last_row(lines: Sequence[str]) -> str:
    """The last row of a table that was printed with a heading for each column."""
    rows = [re.split(r"\s{2,}", x.strip()) for x in lines]
    rows = [row for row in rows if len(row) > 2]  # noqa: PLR2004 - fewer are no table
    pairs = zip(rows[0], rows[-1], strict=False) if rows else ()
    return ", ".join(f"{heading} {value}" for heading, value in pairs)


def _make(target: str, *more: str) -> tuple[str, ...]:
    return ("make", "--no-print-directory", target, *more)


LAWS = {
    "attempts": "tests/flowmesh_control/test_law_of_attempts.py",
    "scopes": "tests/flowmesh_control/test_law_of_scopes.py",
    "company": "tests/flowmesh_core/machine/test_law_of_company.py",
    "messages": "tests/flowmesh_control/test_generated_messages.py",
    "verification": "tests/flowmesh_control/verification",
}
"""By name: the tests whose number of examples ``make laws`` raises."""

_SERVING = "tests/flowmesh_serving"
SERVING = {
    "kills": (
        f"{_SERVING}/test_killed.py::test_kill_9_at_twenty_moments_of_each_process",
        "kills of each process",
    ),
    "kills-short": (
        f"{_SERVING}/test_killed.py::test_kill_9_at_five_moments_of_each_process",
        "kills of each process",
    ),
    "leader": (
        f"{_SERVING}/test_killed.py::test_without_a_control_plane_for_a_minute_no_request_fails",
        "without a leader",
    ),
    "leader-cluster": (
        f"{_SERVING}/test_leader_away.py"
        "::test_no_request_fails_while_the_leader_of_a_cluster_is_away_for_a_minute",
        "without the leader of a cluster",
    ),
    "overload": (
        f"{_SERVING}/test_five_times_capacity.py"
        "::test_a_minute_of_five_times_the_capacity_refuses_within_ten_milliseconds",
        "overload of",
    ),
    "recomputed": (
        f"{_SERVING}/test_recomputed.py"
        "::test_ten_thousand_calls_under_kills_compute_again_what_was_lost",
        "recomputed after",
    ),
}
"""By name: a test of routers, hubs and workers, and what the line of its figures begins with."""

SIDE_CHANNELS = ("simulated", "runs", "queries", "uploads", "prefixes")
"""The parts of ``make bench-side-channels``."""

JOBS: tuple[Job, ...] = (
    *(
        Job(
            f"soak-{first}-{first + 999}",
            _make("soak", f"SEEDS={first}-{first + 999}"),
            3600.0,
            line_with(" broken: "),
        )
        for first in range(0, 10_000, 1000)
    ),
    Job("paper", _make("paper"), 8 * 3600.0, last_line),
    Job(
        "placement-evidence",
        _make("placement-evidence", "ARGS=--all --final --seeds 3 --write"),
        24 * 3600.0,
        line_with("rules reached"),
    ),
    Job("paper-serving", _make("paper-serving"), 7200.0, line_with("wrote")),
    Job(
        "calls",
        _make("soak", "SEEDS=0-9999", "ARGS=--calls"),
        3600.0,
        line_with(" broken: "),
    ),
    Job("base", _make("check-base"), 1800.0, line_from("limits ")),
    Job("tests", _make("test-nightly"), 7200.0, last_line),
    Job("calibration", _make("bench-calibration"), 3600.0, line_with("mean error")),
    Job("bench-dispatch", _make("bench-dispatch", "ARGS=--draft"), 3600.0, column("/ Ray")),
    Job("bench-tick", _make("bench-tick"), 1200.0, last_row),
    Job(
        "attacks",
        _make("bench-attacks", "ARGS=--draft"),
        1200.0,
        column("worst"),
        refuted="not held by",
    ),
    *(
        Job(
            f"channels-{part}",
            _make("bench-side-channels", f"ARGS=--draft --only {part}"),
            3600.0,
            column("95% interval"),
            refuted="not held by",
        )
        for part in SIDE_CHANNELS
    ),
    *(
        Job(f"serving-{name}", _make("test-nightly", f"ARGS=-s {test}"), 3600.0, line_from(figures))
        for name, (test, figures) in SERVING.items()
    ),
    Job("batch-kills", _make("bench-batch-kills"), 1800.0, line_with('"kills"')),
    Job("serving-soak", _make("bench-serving-soak"), 3 * 3600.0, line_with("soak of")),
    Job("store-soak", _make("store-soak"), 3 * 3600.0, line_with("store soak of")),
    Job(
        "store-soak-short",
        _make("store-soak", "ARGS=--minutes 10"),
        1800.0,
        line_with("store soak of"),
    ),
    Job("many-workflows", _make("many-workflows"), 2 * 3600.0, line_with("many workflows:")),
    Job("sampling", _make("sampling"), 3600.0, line_with("liar of")),
    *(
        Job(f"laws-{law}", _make("laws", f"LAWS={tests}"), 2 * 3600.0, last_line)
        for law, tests in LAWS.items()
    ),
)


def chosen(words: Sequence[str]) -> list[Job]:
    """The jobs of these names and groups, in order of the list; all where there are none.

    Raises:
        ValueError: a word names no job and no group.
    """
    for word in words:
        if not any(_is_named(job, word) for job in JOBS):
            groups = dict.fromkeys(job.name.partition("-")[0] for job in JOBS)
            raise ValueError(f"no job {word!r}; there are {', '.join(groups)}")
    return [job for job in JOBS if not words or any(_is_named(job, word) for word in words)]


def _is_named(job: Job, word: str) -> bool:
    return job.name == word or job.name.partition("-")[0] == word


def run(job: Job, log: Path) -> Outcome:
    """Runs a job in a process group of its own, which is ended at its limit."""
    log.parent.mkdir(parents=True, exist_ok=True)
    began_s = time.monotonic()
    with log.open("wb") as out:
        process = subprocess.Popen(
            job.command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
        code: int | None = None
        try:
            code = process.wait(job.limit_s)
        except subprocess.TimeoutExpired:
            pass
        finally:
            _end(process)
    lines = log.read_text(errors="replace").splitlines()
    return Outcome(code, time.monotonic() - began_s, lines)


def _end(process: "subprocess.Popen[bytes]") -> None:
    """Ends what is left of a process group."""
    for number, wait_s in ((signal.SIGTERM, _GRACE_S), (signal.SIGKILL, None)):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        try:
            process.wait(wait_s)
        except subprocess.TimeoutExpired:
            continue
    process.wait()


def row(job: Job, outcome: Outcome, *, commit: str, date: str) -> str:
    """A job's row of the table."""
    failure = job.failure(outcome)
    result = f"**failed**: {failure}" if failure else "passed"
    figures = job.figures(outcome.lines) or last_line(outcome.lines)
    figures = " ".join(figures.split())
    if len(figures) > _FIGURES_CHARS:
        figures = f"{figures[:_FIGURES_CHARS]}…"
    figures = figures.replace("|", "\\|").replace("`", "'")
    cells = (f"`{job.name}`", commit, date, f"{outcome.seconds:.0f}", result, figures)
    return f"| {' | '.join(cells)} |"


def page(before: str, rows: Iterable[str]) -> str:
    """The page with these rows in place of those of the same jobs; all other rows stay."""
    found = {name: line for line in before.splitlines() for name in _ROW.findall(line)}
    found |= {name: line for line in rows for name in _ROW.findall(line)}
    order = [job.name for job in JOBS]
    names = sorted(found, key=lambda n: (order.index(n) if n in order else len(order), n))
    heading = f"| {' | '.join(COLUMNS)} |\n|{' --- |' * len(COLUMNS)}\n"
    return "\n".join([INTRODUCTION, heading + "".join(f"{found[name]}\n" for name in names)])


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


def _commit() -> str:
    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", f":!{_page_name()}")
    return git("rev-parse", "--short=12", "HEAD") + ("+" if changed else "")


def _page_name() -> str:
    return str(PAGE.relative_to(ROOT))


def main(words: Sequence[str]) -> int:
    """Runs the jobs one after the other; returns 1 where one failed."""
    try:
        jobs = chosen(words)
    except ValueError as e:
        print(f"make nightly: {e}", file=sys.stderr)
        return 2
    commit = _commit()
    failed = []
    for job in jobs:
        print(f"{job.name}: {' '.join(job.command)}", flush=True)
        date = time.strftime("%Y-%m-%d", time.gmtime())
        outcome = run(job, LOGS / f"{job.name}.log")
        line = row(job, outcome, commit=commit, date=date)
        before = PAGE.read_text() if PAGE.exists() else ""
        PAGE.write_text(page(before, [line]))
        print(line, flush=True)
        if job.failure(outcome):
            failed.append(job.name)
    if failed:
        print(f"failed: {', '.join(failed)}; see {LOGS.relative_to(ROOT)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
