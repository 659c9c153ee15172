"""Amendments reach runs that are under way, and no others."""

from typing import Any, cast

import pytest

from flowmesh_api.v1.runs import RunStatus
from flowmesh_control.errors import ConflictError
from flowmesh_control.runs.admission import Admission
from flowmesh_control.runs.cancellations import RunCanceller
from flowmesh_control.runs.commands import RunCommands
from flowmesh_core.machine.events import Amended

WAITS = RunStatus("w", "w", "team-a", "Pending", 1.0, message="waits for x", remedy="repin it")


def commands(live: set[str], waiting: dict[str, RunStatus]) -> tuple[RunCommands, list[Amended]]:
    asked = list[Amended]()

    async def ask(event: Amended) -> None:
        asked.append(event)

    nothing: Any = None
    admission, canceller = cast(Admission, nothing), cast(RunCanceller, nothing)
    return RunCommands(admission, canceller, live, waiting, ask), asked


async def test_a_run_that_waits_for_an_engine_cannot_be_amended() -> None:
    found, asked = commands(set(), {"w": WAITS})
    with pytest.raises(ConflictError, match="waits for x"):
        await found.amend("w", {"priority": 1})
    assert asked == []


async def test_a_run_can_be_amended_right_after_a_repin() -> None:
    found, asked = commands({"w"}, {"w": WAITS})
    await found.amend("w", {"priority": 1})
    assert asked == [Amended("w", {"priority": 1})]
