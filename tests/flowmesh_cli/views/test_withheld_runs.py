"""The table of runs that have withheld results."""

import pytest
from msgspec.structs import replace

from flowmesh_api.v1.withheld import ConcernedRun, WithholdReport
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.verbs.withhold import _show

RUNS = (
    ConcernedRun("ask-1", "ask", "team-a", "Succeeded", ("one",)),
    ConcernedRun("use-2", "use", "team-a", "Succeeded", ("two",), derived=True),
)


@pytest.mark.parametrize("rerun", ["", "ask-3"])
def test_every_column_has_a_heading_and_says_something(
    rerun: str, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = (replace(RUNS[0], rerun=rerun), RUNS[1])
    _show(Terminal(as_json=False), WithholdReport(3, 1, {}, (), runs, ()), dry_run=True)
    _, heading, first, second, *_ = capsys.readouterr().out.splitlines()
    assert heading.split() == [
        "run",
        "namespace",
        "phase",
        "has",
        "steps",
        *["rerun"] * bool(rerun),
    ]
    assert "a result  " in first
    assert "made of a result" in second
    assert ("ask-3" in first) is bool(rerun)
