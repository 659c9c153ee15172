"""What the live bars show on terminals of usual widths."""

import io

import pytest
from rich.console import Console

from flowmesh_api.v1.runs import RunStatus, StepStatus
from flowmesh_cli.views.live_progress import picture

LONG = ", ".join(f"first-answer-{number:08x}" for number in range(9))


@pytest.mark.parametrize("columns", [80, 120, 200])
def test_a_step_with_long_details_still_shows_its_name_and_progress_bar(columns: int) -> None:
    told = StepStatus("inputs.base", "model.import", "COMPLETED", executed=1, shared_with=(LONG,))
    steps = (told, StepStatus("tune[lr=1e-5,seed=1]", "test.noop", "PENDING"))
    run = RunStatus("r-1", "r", "team-a", "Running", 0.0, steps=steps)
    console = Console(file=io.StringIO(), width=columns, force_terminal=True, color_system=None)
    console.print(picture([run], None, 1.0))
    written = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert len(written) == 3
    assert written[1].startswith("  ✔ inputs.base ")
    assert written[2].startswith("  · tune[lr=1e-5,seed=1] ")
    assert written[1].count("━") == 24
    assert "1 ran" in written[1]
    assert all(len(line) <= columns for line in written)
