"""Workers that are paid for whether they are used or not: what they cost weighs little."""

import pytest
from tests.flowmesh_core.scheduler.builders import (
    HOUR_USD,
    action,
    signature,
    snapshot,
    where,
    worker,
)

from flowmesh_core.costmodel import CostModel
from flowmesh_core.fleet.ready import Work
from flowmesh_core.fleet.snapshot import Tier
from flowmesh_core.graph.plan import Weights
from flowmesh_core.scheduler import candidates_of, decide

GB = 10**9
LLM = signature("llm", memory_mib=20_000, components={"m": 16 * GB}, work_unit="tokens")
WORK = Work(tokens_out=20_000.0, component_bytes=16 * GB)
BALANCED, COST, LATENCY = Weights(), Weights(0.25, 1.0, 0.5), Weights(1.0, 0.1, 0.25)


def h100(*, sunk: bool = False, usd: float = 12.0):
    """Faster than the other, and dearer for every token."""
    return device("h100", "nvidia-h100", usd, sunk=sunk)


def rtx(*, sunk: bool = False, usd: float = 0.4):
    return device("rtx", "nvidia-4090", usd, sunk=sunk)


def device(name: str, kind: str, usd: float, *, sunk: bool):
    price = round(usd * HOUR_USD)
    return worker(
        name, memory_mib=24_000, device_class=kind, price_nanousd_per_hour=price, sunk=sunk,
        near={"m": Tier.DISK},
    )  # fmt: skip


def chosen(workers, weights: Weights = BALANCED) -> str:
    view = snapshot(workers, [action("a", LLM, weights=weights, work=WORK)], [LLM])
    return where(decide(view, CostModel()))["a"]


def costs(workers, weights: Weights = BALANCED) -> dict[str, float]:
    one = action("a", LLM, weights=weights, work=WORK)
    found = candidates_of(one, snapshot(workers, [one], [LLM]), CostModel())
    return {c.worker: c.terms.cost for c in found}


def test_what_is_rented_for_the_work_is_the_cheaper_one_and_what_is_there_anyway_the_faster_one():
    assert chosen([h100(), rtx()]) == "rtx"
    assert chosen([h100(sunk=True), rtx(sunk=True)]) == "h100"


def test_a_worker_that_is_paid_for_anyway_comes_before_one_that_is_rented():
    assert chosen([h100(sunk=True), rtx()]) == "h100"
    assert chosen([h100(), rtx(sunk=True)]) == "rtx"


def test_who_prefers_dollars_gets_the_smaller_receipt_on_any_fleet():
    assert chosen([h100(sunk=True), rtx(sunk=True)], COST) == "rtx"
    assert costs([h100(sunk=True), rtx(sunk=True)], COST) == costs([h100(), rtx()], COST)


@pytest.mark.parametrize("weights", [BALANCED, LATENCY])
def test_of_two_that_are_alike_the_cheaper_is_taken(weights):
    dear, cheap = (device(n, "nvidia-4090", usd, sunk=True) for n, usd in (("a", 2.0), ("b", 0.4)))
    assert chosen([dear, cheap], weights) == "b"


def test_of_two_that_differ_in_this_alone_the_one_that_is_there_anyway_is_taken():
    rented, kept = (device(n, "nvidia-4090", 0.4, sunk=n == "b") for n in "ab")
    assert chosen([rented, kept]) == "b"


def test_what_counts_of_a_sunk_cost_is_a_tenth():
    rented, sunk = costs([h100(), rtx()]), costs([h100(sunk=True), rtx()])
    assert rented["h100"] == 1.0
    assert sunk == {"h100": pytest.approx(0.1), "rtx": rented["rtx"]}
