"""Panels of what an alert watches are drawn as too high, or too low, from the alert's own bound."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
RULES = yaml.safe_load((ROOT / "charts/flowmesh/rules/flowmesh.yaml").read_text())
ALERTS = {rule["alert"]: rule["expr"] for group in RULES["groups"] for rule in group["rules"]}


def panel(board: str, title: str) -> dict[str, Any]:
    made = json.loads((ROOT / f"charts/flowmesh/dashboards/flowmesh-{board}.json").read_text())
    (found,) = [p for p in made["panels"] if p.get("title") == title]
    assert isinstance(found, dict)
    return found


def steps(board: str, title: str) -> list[tuple[Any, str]]:
    thresholds = panel(board, title)["fieldConfig"]["defaults"]["thresholds"]
    return [(step["value"], step["color"]) for step in thresholds["steps"]]


@pytest.mark.parametrize(
    ("board", "title", "alert", "bound"),
    [
        ("fabric", "Steps that failed for good", "FlowMeshStepsFailing", r">= (5)$"),
        ("fabric", "Workers that went away", "FlowMeshWorkersLost", r">= (3)$"),
        ("fabric", "Prediction error", "FlowMeshPredictionsOff", r"> (0\.7)\b"),
        ("fabric", "Store operations, p99", "FlowMeshStoreSlow", r"> (1)$"),
    ],
)
def test_a_panel_is_red_from_the_bound_of_its_alert(
    board: str, title: str, alert: str, bound: str
) -> None:
    value = re.search(bound, ALERTS[alert].strip())
    assert value is not None
    assert steps(board, title) == [(None, "green"), (float(value[1]), "red")]
    assert alert in panel(board, title)["description"]


@pytest.mark.parametrize(
    ("board", "title", "alert", "bound", "least"),
    [
        ("cost", "Share of budgets left", "FlowMeshBudgetNearlySpent", r"< (0\.1) \*", 0.1),
        ("fabric", "Utilisation", "FlowMeshPaidWorkersIdle", r"> (0\.9) \*", 0.1),
    ],
)
def test_a_panel_is_red_below_what_its_alert_asks_for(
    board: str, title: str, alert: str, bound: str, least: float
) -> None:
    assert re.search(bound, ALERTS[alert]) is not None
    assert steps(board, title) == [(None, "red"), (least, "green")]
    assert alert in panel(board, title)["description"]


@pytest.mark.parametrize(
    ("title", "limit"),
    [
        ("A scheduling decision", 0.02),
        ("Time from ready to a worker", 60.0),
        ("Events and store work that wait", 1000.0),
    ],
)
def test_a_panel_is_red_from_the_bound_that_its_text_gives(title: str, limit: float) -> None:
    assert steps("fabric", title) == [(None, "green"), (limit, "red")]
