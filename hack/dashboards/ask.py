"""Runs every query of the dashboards and every alert on a Prometheus; lists those without data.

``python -m hack.dashboards.ask http://127.0.0.1:9090`` for a Prometheus that scrapes an operator;
``--without operator --without router`` for one that scrapes a local control plane alone, and
``--without replica`` for one without services. Tests call ``silent`` and ``refused``.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from hack.dashboards.cost import COST
from hack.dashboards.engines import ENGINES
from hack.dashboards.fabric import FABRIC
from hack.dashboards.prometheus import Prometheus, PrometheusError
from hack.dashboards.services import SERVICES

CHART = Path(__file__).resolve().parent.parent.parent / "charts" / "flowmesh"
DASHBOARDS, RULES = CHART / "dashboards", CHART / "rules" / "flowmesh.yaml"
NEEDS = ("operator", "router", "replica", "vllm", "dcgm")
LOOK_BACK_S = 300.0
STEP_S = 5.0


@dataclass(frozen=True, slots=True)
class Asked:
    """A query of a committed dashboard."""

    board: str
    panel: str
    unit: str
    legend: str
    expr: str

    def plain(self, window: str, choice: str = ".*") -> str:
        """Returns the expression with Grafana's variables replaced: every choice, this window."""
        text = self.expr.replace("$__rate_interval", window)
        for name in ("tenant", "pool", "model_name", "model", "service"):
            text = text.replace(f"${name}", choice)
        return text


def asked() -> Iterator[Asked]:
    """Yields every query in the chart's JSON files."""
    for path in sorted(DASHBOARDS.glob("*.json")):
        board = json.loads(path.read_text(encoding="utf-8"))
        for panel in board["panels"]:
            for target in panel.get("targets", ()):
                unit = panel["fieldConfig"]["defaults"]["unit"]
                legend = target.get("legendFormat", "")
                yield Asked(board["title"], panel["title"], unit, legend, target["expr"])


def needing(what: str) -> set[str]:
    """Returns the expressions that need what ``what``, such as ``operator``, exports."""
    return {
        q.expr
        for board in (COST, FABRIC, SERVICES, ENGINES)
        for _, panels in board.rows
        for panel in panels
        for q in panel.queries
        if q.needs == what
    }


def silent(
    server: Prometheus, *, window: str = "1m", without: tuple[str, ...] = ()
) -> list[tuple[Asked, str]]:
    """Returns the queries without a number in the last minutes, each with the reason."""
    left_out = {expr for what in without for expr in needing(what)}
    now_s = time.time()
    found = []
    for query in asked():
        if query.expr in left_out:
            continue
        try:
            series = server.over(query.plain(window), now_s - LOOK_BACK_S, now_s, STEP_S)
        except PrometheusError as e:
            found.append((query, str(e)))
            continue
        if not any(_is_number(value) for s in series for _, value in s["values"]):
            found.append((query, f"{len(series)} series, no number"))
    return found


def alerts() -> list[dict[str, Any]]:
    """Returns the chart's alert rules."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def refused(server: Prometheus) -> list[tuple[str, str]]:
    """Returns the alerts whose expression cannot be evaluated, each with the error."""
    found = []
    for rule in alerts():
        try:
            server.instant(rule["expr"])
        except PrometheusError as e:
            found.append((rule["alert"], str(e)))
    return found


def _is_number(text: str) -> bool:
    return math.isfinite(float(text))


def main() -> int:
    """Prints the queries without data and failing alerts; returns 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url", help="URL of the Prometheus")
    parser.add_argument(
        "--window", default="1m", help="value of $__rate_interval, at least 4 scrapes"
    )
    parser.add_argument("--without", action="append", default=[], choices=NEEDS)
    given = parser.parse_args()
    server = Prometheus(given.url.rstrip("/"))
    quiet = silent(server, window=given.window, without=tuple(given.without))
    wrong = refused(server)
    for query, why in quiet:
        print(f"{query.board}, {query.panel}: {why}\n    {query.plain(given.window)}")
    for name, why in wrong:
        print(f"alert {name}: {why}")
    print(
        f"{len(list(asked()))} queries, {len(quiet)} silent; {len(alerts())} alerts, "
        f"{len(wrong)} refused"
    )
    return 1 if quiet or wrong else 0


if __name__ == "__main__":
    sys.exit(main())
