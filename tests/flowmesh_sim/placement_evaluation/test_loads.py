"""The loads of the evaluation of placement: drawn from the scheduler's last commit."""

from pathlib import Path

import pytest

from flowmesh_core.errors import FlowMeshError
from flowmesh_sim.placement_evaluation.loads import FLEET, KINDS, STARTS, draw, scheduler_commit
from flowmesh_sim.scenario import LoadSpec

ROOT = Path(__file__).parent.parent.parent.parent
HASHES = [f"{n:040x}" for n in range(20)]


def test_equal_hashes_give_equal_draws_and_another_hash_another() -> None:
    assert draw(HASHES[0]) == draw(HASHES[0])
    assert draw(HASHES[0]) != draw(HASHES[1])
    for one, other in zip(draw(HASHES[0]).loads, draw(HASHES[1]).loads, strict=True):
        assert one.name == other.name
        assert one.load != other.load


@pytest.mark.parametrize("scheduler", HASHES)
def test_every_draw_is_valid_and_holds_back_a_third_of_the_loads(scheduler: str) -> None:
    drawn = draw(scheduler)
    assert [load.name for load in drawn.loads] == list(KINDS)
    assert 3 * (len(drawn.loads) - len(drawn.seen())) == len(drawn.loads)
    assert not set(drawn.seen_seeds) & set(drawn.evaluation_seeds)
    for load in drawn.loads:
        assert all(LoadSpec.model_validate(part) for part in load.load)
        assert load.workers % len(load.devices) == 0
        assert 3 <= load.workers <= 48


def test_workers_of_other_devices_start_in_several_ways_and_those_of_the_paper_in_one() -> None:
    loads = [load for scheduler in HASHES for load in draw(scheduler).loads]
    assert {load.start for load in loads if load.devices == FLEET} == {"pod"}
    assert {load.start for load in loads if load.devices != FLEET} == set(STARTS)


def test_other_loads_are_held_back_for_other_hashes() -> None:
    held_back = {tuple(x.name for x in draw(h).loads if x.unseen) for h in HASHES}
    assert len(held_back) > len(HASHES) // 2


def test_group_b_needs_a_large_device_and_group_a_none() -> None:
    by_name = {load.name: load for load in draw(HASHES[0]).loads}
    assert len(by_name["steady-a"].subsets()) == 7
    mixed = by_name["mixed"].subsets()
    assert mixed[0] == ("h100-nvl", "4090-48", "4090")
    assert all("h100-nvl" in subset for subset in mixed)
    assert len(mixed) == 4


def test_the_scheduler_is_a_commit_of_this_repository(tmp_path: Path) -> None:
    assert len(scheduler_commit(ROOT)) == 40
    with pytest.raises(FlowMeshError, match="needs git and a clone"):
        scheduler_commit(tmp_path)
