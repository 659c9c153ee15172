"""Tables on a narrow terminal: a row is a line, and less important columns are left out."""

from collections.abc import Callable, Sequence

import pytest
from tests.flowmesh_cli.test_plan_shown import GUESSED, HIT, MEASURED, UNKNOWN, forecast
from tests.flowmesh_cli.verbs.test_receipts import LINES
from tests.flowmesh_cli.verbs.test_why import STEP, TERMS

from flowmesh_api.v1.plan import PlannedStep
from flowmesh_api.v1.runs import RunStatus, RunSummary, StepStatus
from flowmesh_api.v1.why import AttemptLine, Candidate, Explanation, PlacedAction
from flowmesh_cli.connection.target import Target
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.verbs import engines, plan, receipts
from flowmesh_cli.views import formatting
from flowmesh_cli.views.placement import show_explanation
from flowmesh_cli.views.rows import show_rows
from flowmesh_cli.views.runs import show_run, show_summaries
from flowmesh_cli.views.why import show_attempts
from flowmesh_core.accounting.receipt import receipt
from flowmesh_core.catalog.plugins import load_catalog

UIDS = ("best-of-four-5dd05e57", "word-problems-with-a-long-name-d1f29857")
RUNS = [
    RunSummary(
        uid, uid.rpartition("-")[0], "team-c", "Failed", 1e9, executed=12,
        paid_nanousd=1_421_000, saved_nanousd=1_575_000, steps=6, completed=3, failed=1,
        cancelled=2,
    )
    for uid in UIDS
]  # fmt: skip
STEPS = tuple(
    StepStatus(path=path, engine=engine, state="COMPLETED", executed=1, paid_nanousd=900_000)
    for path, engine in (("inputs.questions", "dataset.import"), ("score", "eval.exact-match"))
)
RUN = RunStatus(UIDS[0], "best-of-four", "team-a", "Succeeded", 1e9, steps=STEPS)
FAR = PlannedStep("inputs.questions", "dataset.import", "run", actions=1, worker="cpu-small-7f9c")
ATTEMPT = AttemptLine(100.0, "sample", 0, "action", "a", "cpu-small-7f9c", "i", "published", 1, 1)
CANDIDATES = (Candidate("cpu-small-7f9c", TERMS, True), Candidate("local-2", TERMS, False))
ACTION = PlacedAction(0, "0123456789ab", "running", ("local-1",), CANDIDATES)


ENGINES = [f"{c.name}" for c in load_catalog() if not c.name.startswith("test.")]
TABLES: dict[str, tuple[Callable[[Terminal], None], str, Sequence[str]]] = {
    "list": (lambda t: show_summaries(t, RUNS), "run", ["team-c/"] * 2),
    "status": (lambda t: show_run(t, RUN, 2e9), "step", ["✔ inputs.questions", "✔ score"]),
    "plan": (
        lambda t: plan.show(t, forecast(FAR, HIT, MEASURED, GUESSED, UNKNOWN)),
        "step",
        ["inputs.questions", "inputs.base", "sample", "vote", "score"],
    ),
    "receipt": (
        lambda t: receipts.show_lines(t, receipt("u", "n", "team-a", LINES), {}),
        "step",
        ["sample", "score"],
    ),
    "why": (lambda t: show_attempts(t, (ATTEMPT,) * 2), "ended", ["00:01:40"] * 2),
    "explain": (
        lambda t: show_explanation(
            t, Explanation("u", "sample", (0.25, 0.5, 0.25), (ACTION,), 0, ()), STEP
        ),
        "worker",
        ["cpu-small-7f9c", "local-2"],
    ),
    "engines": (
        lambda t: engines.show_engines("", every=False, place=Target(), as_json=t.as_json),
        "engine",
        ENGINES,
    ),
    "rows": (
        lambda t: show_rows(t, [{f"c{n}": f"row{i} " * 20 for n in range(9)} for i in range(3)]),
        "c0",
        ["row0", "row1", "row2"],
    ),
}


@pytest.mark.parametrize("width", [80, 100, 110])
@pytest.mark.parametrize("table", TABLES)
def test_a_row_is_a_line_on_a_narrow_terminal(
    table: str, width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setattr(formatting, "clock", lambda _: "00:01:40")
    show, heading, rows = TABLES[table]
    show(Terminal(as_json=False))
    lines = capsys.readouterr().out.splitlines()
    start = next(n for n, line in enumerate(lines) if line.startswith(f"{heading} "))
    shown, after = lines[start + 1 : start + 1 + len(rows)], lines[start + 1 + len(rows) :]
    assert [row for row, line in zip(rows, shown, strict=True) if not line.startswith(row)] == []
    assert not "".join(after[:1]).startswith("    ")
    assert max(map(len, [lines[start], *shown])) <= width


def test_the_least_important_columns_go_first_and_those_that_say_nothing_before_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def headings(width: int) -> list[str]:
        monkeypatch.setenv("COLUMNS", str(width))
        rows = [["a-name", "0", "1", "2", "a long text that is cut"]]
        Terminal(as_json=False).table(
            ["name", "first", "second", "third", "text"],
            rows,
            right="first second third",
            optional="third second first",
            cut="text",
        )
        return capsys.readouterr().out.splitlines()[0].split()

    assert headings(80) == ["name", "first", "second", "third", "text"]
    assert headings(40) == ["name", "second", "third", "text"]
    assert headings(30) == ["name", "second", "text"]
    assert headings(25) == ["name", "text"]


def test_a_value_that_is_cut_ends_with_an_ellipsis_and_prose_is_folded(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "50")
    prose = "a sentence that says why, and what to do about it now"
    Terminal(as_json=False).table(["name", ""], [["日本語" * 10, prose]], cut="name")
    first, *rest = capsys.readouterr().out.splitlines()[1:]
    assert "…" in first
    assert " ".join([first.partition("…")[2], *rest]).split() == prose.split()


def test_output_to_a_pipe_has_every_column(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    show_summaries(Terminal(as_json=False), RUNS)
    headings, first, second = lines = capsys.readouterr().out.splitlines()
    assert lines == [line.rstrip() for line in lines]
    assert headings.split()[0::8] == ["run", "created"]
    assert headings.split()[1:8] == ["uid", "phase", "steps", "ran", "hits", "paid", "saved"]
    assert "team-c/word-problems-with-a-long-name" in second
    assert "3/6, 1 failed, 2 cancelled" in first
