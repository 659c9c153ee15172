"""Draws the dashboards' panels with matplotlib from a Prometheus' data: ``docs/images/*.png``.

They have the queries, titles and data of the dashboards, but not Grafana's rendering; graphs in
which every series stays at 0 are omitted. With ``--session`` it makes the data first, in two
minutes, with a local fabric, tenants that share and tenants that do not, and work that fails
(``python -m hack.dashboards.pictures --session``).
"""

import argparse
import math
import sys
import tempfile
import time
from contextlib import ExitStack
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hack.dashboards.ask import Asked, asked
from hack.dashboards.prometheus import Prometheus
from hack.dashboards.session import fabric_at_work

if TYPE_CHECKING:
    from matplotlib.axes import Axes

IMAGES = Path(__file__).resolve().parent.parent.parent / "docs" / "images"
ACROSS = 3
WIDE_IN, HIGH_IN = 4.4, 2.3
POINTS = 150
LABELS_MAX = 6
ROOM = 1.25
Series = tuple[str, str, list[tuple[float, float]]]
"""Label, unit, and points: seconds before the end, and a value."""
UNITS = {
    "percentunit": "share",
    "currencyUSD": "$",
    "s": "s",
    "watt": "W",
    "short": "",
    "ops": "1/s",
    "reqps": "1/s",
}


def draw(server: Prometheus, seconds: float, window: str, folder: Path) -> list[Path]:
    """Draws every dashboard's graphs of the last ``seconds``; returns the files."""
    import matplotlib as mpl  # noqa: PLC0415 - the extra `sim`

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415 - the extra `sim`

    made = []
    for board, queries in groupby(asked(), key=lambda q: q.board):
        panels = [(title, list(found)) for title, found in groupby(queries, key=lambda q: q.panel)]
        graphs = [(t, q) for t, q in panels if any(x.legend for x in q)]
        shown = [(t, d) for t, q in graphs if (d := _data(server, q, seconds, window))]
        if not shown:  # what nothing here exports, such as vLLM's own server
            continue
        rows = math.ceil(len(shown) / ACROSS)
        figure, axes = plt.subplots(
            rows, ACROSS, figsize=(WIDE_IN * ACROSS, HIGH_IN * rows), squeeze=False
        )
        for number, axis in enumerate(axes.flat):
            if number < len(shown):
                _panel(axis, *shown[number])
            else:
                axis.axis("off")
        figure.tight_layout()
        name = board.rpartition("/")[2].strip().lower()
        path = folder / f"dashboard-{name}.png"
        figure.savefig(path, dpi=72)
        plt.close(figure)
        made.append(path)
    return made


def _data(server: Prometheus, queries: list[Asked], seconds: float, window: str) -> list[Series]:
    """Returns every series that is not always 0."""
    end_s = time.time()
    found = []
    for query in queries:
        step_s = max(1.0, seconds / POINTS)
        for series in server.over(query.plain(window), end_s - seconds, end_s, step_s):
            points = [(t - end_s, float(v)) for t, v in series["values"]]
            points = [(t, v) for t, v in points if math.isfinite(v)]
            if any(v for _, v in points):
                found.append((_legend(query.legend, series["metric"]), query.unit, points))
    return found


def _legend(form: str, labels: dict[str, Any]) -> str:
    for name, value in labels.items():
        form = form.replace("{{" + name + "}}", str(value))
    return form


def _panel(axis: "Axes", title: str, data: list[Series]) -> None:
    for label, _, points in data:
        axis.plot([t for t, _ in points], [v for _, v in points], label=label, linewidth=1.2)
    unit = UNITS.get(data[0][1], data[0][1])
    axis.set_title(f"{title} ({unit})" if unit else title, fontsize=9, loc="left")
    axis.set_ylim(0, ROOM * max(v for _, _, points in data for _, v in points))
    axis.tick_params(labelsize=7)
    axis.set_xlabel("seconds before the end", fontsize=6)
    axis.grid(visible=True, alpha=0.25)
    if len(data) <= LABELS_MAX:
        axis.legend(fontsize=6, loc="upper left", frameon=False)


def main() -> int:
    """Draws the dashboards and prints the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", nargs="?", default="", help="URL of a Prometheus")
    parser.add_argument("--session", action="store_true", help="make the data first")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--window", default="15s", help="value of $__rate_interval")
    arguments = parser.parse_args()
    if bool(arguments.url) is arguments.session:
        parser.error("expected either the URL of a Prometheus or --session")
    with ExitStack() as stack:
        server = Prometheus(arguments.url.rstrip("/"))
        if arguments.session:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            server = stack.enter_context(fabric_at_work(folder, arguments.seconds))
        for path in draw(server, arguments.seconds, arguments.window, IMAGES):
            print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
