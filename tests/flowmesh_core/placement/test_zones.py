"""Copies in the same zone are nearer than those of another one."""

import pytest
from tests.flowmesh_core.placement.builders import (
    action,
    digest,
    signature,
    snapshot,
    where,
    worker,
)

from flowmesh_core.costmodel import CostModel
from flowmesh_core.fleet.ready import NEGLIGIBLE_BYTES, WorkSize
from flowmesh_core.fleet.snapshot import Tier, WorkerView
from flowmesh_core.placement import candidates_of, decide, input_locality
from flowmesh_core.placement.input_locality import InputLocality

GB = 10**9
LLM = signature("llm", components={"m": 2 * GB})
SQL = signature("sql", engine="data.sql")
ROWS = ((digest("rows"), GB),)
WITH_ROWS = {"inputs": ROWS, "work": WorkSize(units=10.0, input_bytes=GB)}
"""An action with a large input."""


def zoned(name: str, zone: str, **more: object) -> WorkerView:
    return worker(name, zone=zone, **more)  # type: ignore[arg-type]


def localities(workers: list[WorkerView], info=LLM, **fields: object) -> dict[str, float]:
    one = action("a", info, **fields)
    found = candidates_of(one, snapshot(workers, [one], [info]), CostModel())
    return {c.worker: c.terms.locality for c in found}


BUSY = {"near": {"m": Tier.DISK, "rows": Tier.DISK}, "draining": False, "memory_mib": 500}
"""A worker that has the content, and no memory for another engine."""


@pytest.mark.parametrize(
    ("info", "fields"), [(LLM, {}), (SQL, WITH_ROWS)], ids=["component", "input"]
)
def test_work_goes_to_the_zone_that_has_its_content(info, fields) -> None:
    holder = zoned("holder", "a", **BUSY)
    others = [zoned("1-of-b", "b"), zoned("2-of-a", "a"), zoned("3-of-b", "b")]
    found = localities([holder, *others], info, **fields)
    assert found == {"1-of-b": 0.0, "2-of-a": pytest.approx(0.2), "3-of-b": 0.0}
    one = action("x", info, **fields)
    assert where(decide(snapshot([holder, *others], [one], [info]), CostModel())) == {"x": "2-of-a"}


@pytest.mark.parametrize(
    ("info", "fields"), [(LLM, {}), (SQL, WITH_ROWS)], ids=["component", "input"]
)
def test_the_worker_with_the_content_is_nearer_than_its_zone(info, fields) -> None:
    near = {"m": Tier.DISK, "rows": Tier.DISK}
    workers = [zoned("1-of-a", "a"), zoned("2-of-a", "a", near=near), zoned("3-of-b", "b")]
    found = localities(workers, info, **fields)
    assert found == {"1-of-a": pytest.approx(0.2), "2-of-a": pytest.approx(0.5), "3-of-b": 0.0}


@pytest.mark.parametrize("zones", [("", "", ""), ("a", "a", "a")], ids=["none", "one"])
def test_where_zones_distinguish_nothing_they_change_nothing(zones: tuple[str, ...]) -> None:
    first, second, third = zones
    holder = zoned("holder", first, **BUSY)
    found = localities([holder, zoned("x", second), zoned("y", third)])
    assert found == {"x": 0.0, "y": 0.0}


def test_workers_without_a_zone_are_near_to_none() -> None:
    workers = [zoned("holder", "", **BUSY), zoned("nowhere", ""), zoned("of-b", "b")]
    assert localities(workers) == {"nowhere": 0.0, "of-b": 0.0}


def test_a_draining_worker_s_copies_do_not_count() -> None:
    leaving = zoned("holder", "a", near={"m": Tier.DISK}, draining=True)
    assert localities([leaving, zoned("of-a", "a"), zoned("of-b", "b")]) == {
        "of-a": 0.0,
        "of-b": 0.0,
    }


def test_a_copy_in_the_zone_saves_no_time() -> None:
    """Workers read from the store alone."""
    workers = [zoned("holder", "a", **BUSY), zoned("of-a", "a"), zoned("of-b", "b")]
    one = action("a", LLM)
    found = candidates_of(one, snapshot(workers, [one], [LLM]), CostModel())
    finishes = {c.worker: c.terms.finish_s for c in found}
    assert finishes["of-a"] == pytest.approx(finishes["of-b"])


def test_small_inputs_do_not_count_in_a_zone_either() -> None:
    small = ((digest("rows"), NEGLIGIBLE_BYTES),)
    workers = [zoned("holder", "a", **BUSY), zoned("of-a", "a"), zoned("of-b", "b")]
    assert len(set(localities(workers, SQL, inputs=small).values())) == 1


def test_in_a_large_fleet_the_first_workers_of_the_zone_are_considered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = [zoned(f"w{n}", "ab"[n % 2]) for n in range(6)]
    fleet.append(zoned("w9", "b", near={"rows": Tier.DISK}))
    one = action("a", SQL, inputs=ROWS)
    view = snapshot(fleet, [one], [SQL])
    assert list(InputLocality(view).among(one, range(7))) == [6, 1, 3, 5]
    monkeypatch.setattr(input_locality, "LOCALITY_BY_WORKER_MAX", 2)
    assert list(InputLocality(view).among(one, range(7))) == [6, 1, 3]
