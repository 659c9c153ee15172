"""Workers whose pool has a slow network are expected to have weights and inputs later."""

import pytest
from tests.flowmesh_core.placement.builders import action, signature, snapshot, where, worker

from flowmesh_core.costmodel import CostModel
from flowmesh_core.fleet.ready import WorkSize
from flowmesh_core.placement.action_groups import groups_of
from flowmesh_core.placement.candidates import CandidateFinder
from flowmesh_core.placement.cycle import SchedulingCycle
from flowmesh_core.placement.decide import decide

GB = 10**9
LLM = signature("llm", memory_mib=5_000, components={"model": 16 * GB}, work_unit="tokens")
SQL = signature("sql", memory_mib=500, engine="data.sql")
LEASED, IN_CENTRE = worker("a-leased", pool="leased"), worker("b", pool="pods")
"""Equal but for their pool; the first of equals is chosen."""


def taught() -> CostModel:
    """A model that has seen a fetch to a leased machine."""
    model = CostModel()
    model.observe_fetch("leased", 16 * GB, 120.0)
    return model


@pytest.mark.parametrize("info", [LLM, SQL], ids=["weights", "inputs"])
def test_an_action_goes_where_what_it_needs_comes_sooner(info) -> None:
    work = WorkSize(units=10.0, input_bytes=16 * GB if info is SQL else 0)
    view = snapshot([LEASED, IN_CENTRE], [action("one", info, work=work)], [info])
    assert where(decide(view, CostModel())) == {"one": "a-leased"}
    assert where(decide(view, taught())) == {"one": "b"}


def test_the_estimate_is_later_by_what_the_network_takes_longer() -> None:
    model = taught()
    one = action("one", LLM, work=WorkSize(units=10.0, component_bytes=16 * GB))
    tick = SchedulingCycle(snapshot([LEASED, IN_CENTRE], [one], [LLM]), model)
    (group,) = groups_of(tick.snapshot)
    finder = CandidateFinder(tick)
    found = finder.estimates(group, finder.free_slots(group))
    leased, in_centre = found.all
    later_s = 120.0 - CostModel().fetch_s(16 * GB)
    assert leased.start_s - in_centre.start_s == pytest.approx(later_s)
    assert tick.load_s(group, 0) - tick.load_s(group, 1) == pytest.approx(later_s)
