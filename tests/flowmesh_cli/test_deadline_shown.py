"""The deadline in a status."""

import pytest

from flowmesh_api.v1.runs import RunStatus
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.views import formatting
from flowmesh_cli.views.runs import show_run


def test_a_deadline_is_shown_as_an_absolute_time(capsys: pytest.CaptureFixture[str]) -> None:
    created_s = 1_795_000_000.0
    run = RunStatus("u", "n", "team-a", "Running", created_s, deadline_s=1800.0)
    show_run(Terminal(as_json=False), run, created_s + 1)
    assert f"deadline {formatting.date(created_s + 1800.0)}" in capsys.readouterr().out
