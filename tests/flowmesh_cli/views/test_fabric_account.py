"""The fabric's account is of all time, where a command's own figures stand beside it."""

import io

import pytest
from rich.console import Console

from flowmesh_api.v1.fabric import FabricStatus
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.views.live_progress import picture
from flowmesh_cli.views.runs import show_fabric

ACCOUNT = FabricStatus(1, 2, 0, 3, 10**9, 10**9, 0, 0, 5 * 10**8, 13, 10, 6, 2)


def test_the_account_says_that_it_is_of_all_time(capsys: pytest.CaptureFixture[str]) -> None:
    show_fabric(Terminal(as_json=False), ACCOUNT)
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("fabric, all time: 13 actions executed, 18 hits (10 published, ")


def test_live_bars_have_the_state_of_now_and_the_money_of_all_time() -> None:
    console = Console(file=io.StringIO(), width=120, force_terminal=True, color_system=None)
    console.print(picture([], ACCOUNT, 1.0))
    written = console.file.getvalue()  # type: ignore[attr-defined]
    assert "2 workers, 3 running, 0 waiting; all time: bill $1.00, sharing saved $0.50" in written
