"""Duplicate and late messages only end a connection; damaged blobs are found by reading."""

from random import Random
from typing import Any

import pytest

from flowmesh_core.machine.events import ActionKey
from flowmesh_core.protocol.results import ActionResult
from flowmesh_core.units import Digest
from flowmesh_sim.invariants.checker import Checker
from flowmesh_sim.kernel.environment import Environment
from flowmesh_sim.kernel.network import Link, SimulatedLinkConnection
from flowmesh_sim.models.store import SimStore
from flowmesh_sim.run.simulation import Simulation
from flowmesh_sim.scenario import scenario_of


def sent(link: Link, engine: Environment, count: int, over: SimulatedLinkConnection) -> list[int]:
    got: list[int] = []
    for n in range(count):
        link.send("up", over, got.append, n)
    engine.run(until_s=100.0, over=lambda: False)
    return got


def test_a_link_delivers_in_order_once() -> None:
    engine = Environment()
    assert sent(Link(engine, 0.1, Random(0)), engine, 9, SimulatedLinkConnection()) == [*range(9)]


def test_a_faulty_link_delivers_twice_or_out_of_order_and_after_the_connection() -> None:
    engine = Environment()
    link = Link(engine, 0.1, Random(0))
    link.twice = 1.0
    assert sent(link, engine, 2, SimulatedLinkConnection()) == [0, 0, 1, 1]
    link.twice, link.overtaken = 0.0, 1.0
    over = SimulatedLinkConnection()
    over.alive = False
    got = sent(link, engine, 9, over)
    assert sorted(got) == [*range(9)]
    assert got != [*range(9)]


@pytest.mark.parametrize("kind", ["twice", "overtaken", "one-way", "partition"])
def test_a_worker_with_a_bad_network_reconnects_and_completes_its_work(kind: str) -> None:
    faults = [{"kind": kind, "atS": 1.0, "forS": 20.0, "share": 1.0, "worker": "p-0001"}]
    document: dict[str, Any] = {
        "name": "t",
        "pools": [{"name": "p", "device": "cpu"}],
        "load": [{"shapes": ["noop-flat"], "runs": 4, "rows": 30, "options": {"seconds": 3}}],
        "faults": faults,
        "control": {"watchdogS": 60},
    }
    simulation = Simulation(scenario_of(document), checker=Checker(every=1))
    dialled: list[float] = []
    worker = simulation.provisioner.living()[0]
    real = worker.hello
    worker.hello = lambda epoch: (dialled.append(worker.engine.now_s), real(epoch))[1]  # type: ignore[method-assign]
    assert simulation.run().succeeded == 4
    assert len(dialled) > 1 or kind == "one-way"
    assert all(at_s < 40.0 for at_s in dialled)


def result(generation: int = 1, expires_s: float = 0.0) -> ActionResult:
    return ActionResult(Digest("a"), generation, "e", 1, 1, {}, {}, expires_s=expires_s)


def test_an_expired_or_torn_result_is_replaced_one_generation_higher() -> None:
    store, key = SimStore(), ActionKey("ns-a", Digest("a"))
    assert store.publish(key, result(expires_s=10.0), replace=False, now_s=1.0)[1]
    assert not store.publish(key, result(), replace=False, now_s=5.0)[1]
    stands, won = store.publish(key, result(), replace=False, now_s=11.0)
    assert (won, stands.generation) == (True, 2)
    store.torn.add(("ns-a", key.action_id))
    assert store.look_up(key, ["ns-a"], 0.0, 12.0) is None
    assert store.publish(key, result(), replace=False, now_s=12.0)[1]
    assert store.look_up(key, ["ns-a"], 0.0, 12.0) is not None


def test_a_damaged_blob_exists_until_it_is_read() -> None:
    store, blob = SimStore(), Digest("b")
    store.put_blob(blob, 1)
    store.damaged.add(blob)
    store.put_blob(blob, 1)
    assert (store.missing([blob]), store.unreadable([blob])) == ([], [blob])
    store.discard([blob])
    assert store.missing([blob]) == [blob]
    store.put_blob(blob, 1)
    assert store.unreadable([blob]) == []
