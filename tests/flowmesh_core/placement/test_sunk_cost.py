"""Sunk cost: connected workers are paid for whether used or not, so their cost counts little."""

import pytest
from tests.flowmesh_core.placement.builders import (
    HOUR_USD,
    action,
    signature,
    snapshot,
    where,
    worker,
)

from flowmesh_core.costmodel import CostModel
from flowmesh_core.fleet.ready import WorkSize
from flowmesh_core.fleet.snapshot import Tier
from flowmesh_core.graph.plan import UtilityWeights
from flowmesh_core.placement import candidates_of, decide

GB = 10**9
LLM = signature("llm", memory_mib=20_000, components={"m": 16 * GB}, work_unit="tokens")
WORK = WorkSize(tokens_out=20_000.0, component_bytes=16 * GB)
BALANCED, COST, LATENCY = (
    UtilityWeights(),
    UtilityWeights(0.25, 1.0, 0.5),
    UtilityWeights(1.0, 0.1, 0.25),
)


def device(name: str, kind: str, usd: float):
    price = round(usd * HOUR_USD)
    return worker(
        name, memory_mib=24_000, device_class=kind, price_nanousd_per_hour=price,
        near={"m": Tier.DISK},
    )  # fmt: skip


H100, RTX = device("h100", "nvidia-h100", 12.0), device("rtx", "nvidia-4090", 0.4)
"""The first is faster, and dearer for every token."""


def chosen(workers, weights: UtilityWeights) -> str:
    view = snapshot(workers, [action("a", LLM, weights=weights, work=WORK)], [LLM])
    return where(decide(view, CostModel()))["a"]


def costs(workers, weights: UtilityWeights) -> dict[str, float]:
    one = action("a", LLM, weights=weights, work=WORK)
    found = candidates_of(one, snapshot(workers, [one], [LLM]), CostModel())
    return {c.worker: c.terms.cost for c in found}


def test_the_faster_running_worker_is_chosen_unless_dollars_weigh_more():
    assert chosen([H100, RTX], BALANCED) == "h100"
    assert chosen([H100, RTX], LATENCY) == "h100"
    assert chosen([H100, RTX], COST) == "rtx"


@pytest.mark.parametrize("weights", [BALANCED, LATENCY, COST])
def test_of_two_equal_workers_the_cheaper_is_chosen(weights):
    dear, cheap = device("a", "nvidia-4090", 2.0), device("b", "nvidia-4090", 0.4)
    assert chosen([dear, cheap], weights) == "b"


def test_a_tenth_of_the_cost_counts_and_all_of_it_where_dollars_weigh_more():
    every, tenth = costs([H100, RTX], COST), costs([H100, RTX], BALANCED)
    assert every["h100"] == 1.0
    assert tenth == {name: pytest.approx(0.1 * cost) for name, cost in every.items()}
