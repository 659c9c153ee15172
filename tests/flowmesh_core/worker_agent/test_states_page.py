"""The page about states has the transitions that the worker agent allows, and no others."""

import re
from pathlib import Path

import pytest

from flowmesh_core.worker_agent import transitions as t

PAGE = Path(__file__).parents[3] / "docs" / "states.md"


def transitions_of(title: str) -> set[tuple[str, str]]:
    text = PAGE.read_text(encoding="utf-8").partition(f"\n### {title}\n")[2]
    table = text.partition("\n#")[0]
    rows = [line.split("|") for line in table.splitlines() if line.startswith("| `")]
    return {
        (row[1].strip(" `"), target) for row in rows for target in re.findall(r"→ `(.+?)`", row[3])
    }


@pytest.mark.parametrize(
    ("title", "allowed"),
    [
        ("Attempt", t.ATTEMPT_TRANSITIONS),
        ("Engine instance", t.INSTANCE_TRANSITIONS),
        ("Standby host", t.STANDBY_TRANSITIONS),
        ("Entry of the prewarm list", t.PREWARM_TRANSITIONS),
        ("Replica of a service", t.REPLICA_TRANSITIONS),
        ("Hub", t.HUB_TRANSITIONS),
    ],
)
def test_the_page_lists_the_allowed_transitions(
    title: str, allowed: frozenset[tuple[t.State, t.State]]
) -> None:
    assert transitions_of(title) == {(before.value, after.value) for before, after in allowed}
