"""Writes ``charts/flowmesh/dashboards/*.json`` with grafana-foundation-sdk, or checks them.

Called by ``make generate`` with ``--write`` and by ``make check`` without.
"""

import sys
from pathlib import Path

from grafana_foundation_sdk.builders import common as common_builders
from grafana_foundation_sdk.builders import dashboard as boards
from grafana_foundation_sdk.builders import prometheus, stat, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common
from grafana_foundation_sdk.models.dashboard import (
    DashboardLinkType,
    DataSourceRef,
    Threshold,
    ThresholdsMode,
    VariableHide,
    VariableRefresh,
)
from hack.dashboards.cost import COST
from hack.dashboards.engines import ENGINES
from hack.dashboards.fabric import FABRIC
from hack.dashboards.panel import Board, Kind, Panel
from hack.dashboards.services import SERVICES

ROOT = Path(__file__).resolve().parent.parent.parent
TARGET = ROOT / "charts" / "flowmesh" / "dashboards"
SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
TAG = "flowmesh"
WIDE, LOW, HIGH = 24, 4, 8
NUMBERS, GRAPHS = 6, 3
"""Panels per row."""


def board_json(board: Board) -> str:
    """Returns a dashboard as JSON for Grafana."""
    made = (
        boards.Dashboard(board.title)
        .uid(board.uid)
        .description(board.about)
        .tags([TAG])
        .refresh("30s")
        .time("now-3h", "now")
        .timezone("browser")
        .with_variable(
            boards.DatasourceVariable("datasource").label("Data source").type("prometheus")
        )
        .with_variable(
            boards.DatasourceVariable("traces")
            .label("Traces")
            .type("tempo")
            .hide(VariableHide.HIDE_VARIABLE)
        )
        .link(_other_boards())
        .link(_traces())
        .annotation(_leader_changes())
    )
    for label, metric in board.variables:
        made.with_variable(
            boards.QueryVariable(label)
            .label(label.capitalize())
            .datasource(SOURCE)
            .query(f"label_values({metric}, {label})")
            .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
            .include_all(include_all=True)
            .all_value(".*")
            .multi(multi=True)
        )
    for title, panels in board.rows:
        made.with_row(boards.Row(title))
        for panel in panels:
            made.with_panel(_number(panel) if panel.kind is Kind.NUMBER else _graph(panel))
    return JSONEncoder(sort_keys=True, indent=2).encode(made.build()) + "\n"


def _other_boards() -> boards.DashboardLink:
    """Returns the links to the other dashboards, for the same time."""
    link = boards.DashboardLink("FlowMesh").type(DashboardLinkType.DASHBOARDS)
    return link.tags([TAG]).keep_time(keep_time=True).as_dropdown(as_dropdown=True)


def _traces() -> boards.DashboardLink:
    """Returns the link to the traces of runs in the source of traces, where Grafana has one."""
    link = boards.DashboardLink("Traces").type(DashboardLinkType.LINK).icon("external link")
    return link.url('/explore?left={"datasource":"${traces}"}').keep_time(keep_time=True)


def _leader_changes() -> boards.AnnotationQuery:
    """Returns the marks of the moments at which another leader took over."""
    expr = "max(flowmesh_leader_epoch) > max(flowmesh_leader_epoch offset 1m)"
    mark = boards.AnnotationQuery().name("Leader changes").enable(enable=True)
    return mark.icon_color("orange").datasource(SOURCE).expr(expr)


def _thresholds(panel: Panel) -> boards.ThresholdsConfig | None:
    """Returns the values at which a panel changes its colour; None where it has none."""
    if panel.limit is None and panel.floor is None:
        return None
    steps = [Threshold(value=None, color="green" if panel.floor is None else "red")]
    if panel.floor is not None:
        steps.append(Threshold(value=panel.floor, color="green"))
    if panel.limit is not None:
        steps.append(Threshold(value=panel.limit, color="red"))
    return boards.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps)


def _number(panel: Panel) -> stat.Panel:
    made = (
        stat.Panel()
        .title(panel.title)
        .description(panel.about)
        .datasource(SOURCE)
        .unit(panel.unit)
        .span(WIDE // NUMBERS)
        .height(LOW)
        .graph_mode(common.BigValueGraphMode.AREA)
        .reduce_options(common_builders.ReduceDataOptions().calcs(["lastNotNull"]))
    )
    if (thresholds := _thresholds(panel)) is not None:
        made.thresholds(thresholds)
    for number, query in enumerate(_queries(panel)):
        made.with_target(query.ref_id(chr(ord("A") + number)))
    return made


def _graph(panel: Panel) -> timeseries.Panel:
    made = (
        timeseries.Panel()
        .title(panel.title)
        .description(panel.about)
        .datasource(SOURCE)
        .unit(panel.unit)
        .span(WIDE // GRAPHS)
        .height(HIGH)
        .min(0)
        .legend(
            common_builders.VizLegendOptions()
            .display_mode(common.LegendDisplayMode.LIST)
            .placement(common.LegendPlacement.BOTTOM)
            .show_legend(show_legend=True)
        )
    )
    if (thresholds := _thresholds(panel)) is not None:
        lines = common_builders.GraphThresholdsStyleConfig().mode(
            common.GraphTresholdsStyleMode.DASHED
        )
        made.thresholds(thresholds).thresholds_style(lines)
    if panel.kind is Kind.STACKED:
        stacking = common_builders.StackingConfig().mode(common.StackingMode.NORMAL)
        made.stacking(stacking).fill_opacity(30)
    for number, query in enumerate(_queries(panel)):
        made.with_target(query.ref_id(chr(ord("A") + number)))
    return made


def _queries(panel: Panel) -> list[prometheus.Dataquery]:
    return [
        prometheus.Dataquery().datasource(SOURCE).expr(q.expr).legend_format(q.legend)
        for q in panel.queries
    ]


def main(arguments: list[str]) -> int:
    """Checks the files, or writes them with ``--write``; returns the exit code."""
    stale = []
    for board in (COST, FABRIC, SERVICES, ENGINES):
        path = TARGET / f"{board.uid}.json"
        text = board_json(board)
        if "--write" in arguments:
            TARGET.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        elif not path.is_file() or path.read_text(encoding="utf-8") != text:
            stale.append(path.relative_to(ROOT))
    for name in stale:
        print(f"{name} differs from hack/dashboards; remedy: make generate", file=sys.stderr)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
