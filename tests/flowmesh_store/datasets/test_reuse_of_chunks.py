"""The demonstration on 2,000 rows: what a change of a dataset runs again."""

import random
from typing import Any

import pytest
from tests.flowmesh_core.identity.engines import GENERATE

from flowmesh_api.v1.enums import Sharing
from flowmesh_api.v1.fabric import CachePolicy
from flowmesh_core.dataset import Manifest
from flowmesh_core.identity import action_id
from flowmesh_core.sharing import plan_scopes
from flowmesh_core.units import Digest
from flowmesh_store.datasets import rows_to_chunks

Row = dict[str, Any]
MODEL = Digest("ab" * 32)


def questions(count: int, seed: int) -> list[Row]:
    rng = random.Random(seed)
    return [
        {
            "id": f"{seed}-{n}",
            "question": f"{rng.random()} + {rng.random()}?",
            "target": rng.random(),
        }
        for n in range(count)
    ]


def actions(manifest: Manifest) -> dict[str, int]:
    """The action of every chunk of a row-wise step, with the rows it works on."""
    params = {"prompt": "Q: {{ question }}"}
    return {
        action_id(GENERATE, params, {}, {"model": MODEL, "rows": c.rows}): c.count
        for c in manifest.chunks
    }


def run_again(before: list[Row], after: list[Row]) -> list[int]:
    """The sizes of the chunks that a step over ``after`` runs when ``before`` was run."""
    known = actions(rows_to_chunks(before)[0])
    new = actions(rows_to_chunks(after)[0])
    return [count for name, count in new.items() if name not in known]


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return questions(2_000, 1)


@pytest.mark.parametrize("position", [0, 1, 31, 700, 1_024, 1_999, 2_000])
def test_one_insert_runs_at_most_three_chunks(rows: list[Row], position: int) -> None:
    after = [*rows[:position], {"id": "new", "question": "1 + 1?", "target": 2.0}, *rows[position:]]
    assert len(run_again(rows, after)) <= 3


def test_a_changed_and_a_removed_row_run_at_most_three_chunks(rows: list[Row]) -> None:
    changed = [*rows[:900], {**rows[900], "target": 0.0}, *rows[901:]]
    assert len(run_again(rows, changed)) <= 3
    assert len(run_again(rows, [*rows[:900], *rows[901:]])) <= 3


@pytest.mark.parametrize("start", [0, 640, 1_900])
def test_twenty_inserts_in_one_region_run_at_most_fifteen_percent(
    rows: list[Row], start: int
) -> None:
    after = list(rows)
    rng = random.Random(start)
    for row in questions(20, 99):
        after.insert(start + rng.randrange(100), row)
    assert sum(run_again(rows, after)) <= 0.15 * len(after)


def test_another_tenants_larger_dataset_shares_the_chunks_under_a_policy(rows: list[Row]) -> None:
    larger = [*questions(800, 2), *rows, *questions(400, 3)]
    published = {"ns-team-a": set[str](), "group-x": set[str]()}
    policy = CachePolicy("research", Sharing.GROUP, "x", ("team-a", "team-b"))

    def rows_run(policies: list[CachePolicy]) -> int:
        for held in published.values():
            held.clear()
        published[plan_scopes(policies, "team-a").publish].update(
            actions(rows_to_chunks(larger)[0])
        )
        seen = set[str]().union(
            *(published.get(s, set()) for s in plan_scopes(policies, "team-b").lookup)
        )
        return sum(n for a, n in actions(rows_to_chunks(rows)[0]).items() if a not in seen)

    assert rows_run([policy]) <= 0.1 * len(rows)
    assert rows_run([]) == len(rows)
