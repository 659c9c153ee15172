"""``fmesh plot``: draws two columns of an output, in the terminal or into a file."""

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from flowmesh_cli.attach import query_fabric
from flowmesh_cli.connection.target import Target
from flowmesh_cli.errors import CliError
from flowmesh_cli.exit_codes import ExitCode
from flowmesh_cli.nearness import nearest
from flowmesh_cli.terminal import Terminal
from flowmesh_cli.verbs.outputs import data_set, named_outputs
from flowmesh_cli.views.chart import chart
from flowmesh_sdk.rows import Rows


def plot_output(
    run: str, *, x: str, y: str, out: Path | None, place: Target, as_json: bool
) -> None:
    """Draws two columns of a data set among a run's outputs.

    Args:
        run: what the user named; ``RUN/OUTPUT`` where the run has several data sets.
        x: the column of the horizontal axis.
        y: the column of the vertical axis.
        out: a file (.png, .svg, .pdf); None for the terminal.
        place: the fabric.
        as_json: whether to answer with the points.

    Raises:
        CliError: there is no such column, or no row has numbers in both.
        FlowMeshError: a file is wanted, and matplotlib is not installed.
    """
    terminal = Terminal(as_json=as_json)
    with query_fabric(place) as http:
        status, outputs = named_outputs(http, run)
        name = data_set(outputs)
        points = points_of(Rows(http, f"/v1/runs/{status.uid}/outputs/{name}", count=None), x, y)
    if out is not None:
        from flowmesh_sim.run.plots import draw_points  # noqa: PLC0415 - loads the simulator

        draw_points(points, out, x=x, y=y, title=f"{status.name}/{name}")
        terminal.note(f"plot written to {out}")
    if as_json:
        terminal.answer({"uid": status.uid, "output": name, "points": points})
    elif out is None:
        for line in chart(points, x=x, y=y):
            terminal.text(line)


def points_of(rows: Iterable[Mapping[str, Any]], x: str, y: str) -> list[tuple[float, float]]:
    """Returns the points of the rows that have a number in both columns.

    Raises:
        CliError: a row has not both columns, or there is no point.
    """
    points = []
    for row in rows:
        for option, column in (("--x", x), ("--y", y)):
            if column not in row:
                raise CliError(
                    f"there is no column {column!r}{nearest(column, row)}",
                    ExitCode.USAGE,
                    where=option,
                    remedy=f"there are {', '.join(row)}",
                )
        if _is_number(row[x]) and _is_number(row[y]):
            points.append((float(row[x]), float(row[y])))
    if not points:
        raise CliError(
            f"no row has a number in {x!r} and in {y!r}",
            ExitCode.USAGE,
            remedy="numbers that are text become numbers in a data.sql step: cast(x as double)",
        )
    return points


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
