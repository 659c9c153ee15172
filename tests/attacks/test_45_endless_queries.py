"""Attacker: T1, a tenant who may submit workflows.
Action: submits six queries that never end, without a timeout, where others wait for the worker.
Must not happen: another tenant waits for more than its share, or a query outlives its time.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.flowmesh_core.machine import world as worlds
from tests.flowmesh_core.machine.world import World, plan, step
from tests.flowmesh_worker.test_sql import dataset

from flowmesh_core.catalog.builtin.data import SQL
from flowmesh_core.errors import AttemptError
from flowmesh_worker.engine_api import HostSettings, Result, Work
from flowmesh_worker.engines.data.sql import Sql

RECURSIVE = (
    "with recursive t(n) as (select 1 union all select n + 1 from t) select max(n) as n from t"
)
DEFAULT_TIMEOUT_S = 600.0
ENDLESS = {
    "recursion": RECURSIVE,
    "cross joins": "select count(*) as n from "
    + ", ".join(f"range(100000) t{i}" for i in range(6)),
    "a sum over very many": "select sum(a.range * b.range) as n"
    " from range(10000000000) a, range(1000) b",
    "a lateral walk": "select sum(u.v) as n from range(100000000000) r,"
    " lateral (select r.range % 7 as v) u",
    "a window": "select max(n) as n from (select sum(range) over (order by range) as n"
    " from range(1000000000000))",
    "lists": "select sum(len(list_transform(range(1000), lambda x: x + r.range))) as n"
    " from range(10000000000) r",
}


@pytest.mark.parametrize("after_s", [0.0, 0.3])
@pytest.mark.parametrize("name", ENDLESS)
async def test_a_query_that_does_not_end_can_be_stopped_and_the_next_is_answered(
    name: str, after_s: float, tmp_path: Path
) -> None:
    engine = Sql()
    await engine.load({}, HostSettings((), 512, 1, {}, tmp_path))
    try:
        running = asyncio.ensure_future(ask(engine, ENDLESS[name]))
        # Before it has begun, and while it runs: some end by themselves, for want of memory.
        await asyncio.wait([running], timeout=after_s)
        if not running.done():
            running.cancel()
        with pytest.raises((asyncio.CancelledError, MemoryError, AttemptError)):
            await asyncio.wait_for(running, 60)
        found = await ask(engine, "select n + 1 as m from t")
        assert found.outputs["rows"].rows.to_pylist() == [{"m": 3}]
    finally:
        await engine.close()


async def ask(engine: Sql, query: str) -> Result:
    work = Work("a", "b", {"query": query}, {}, {"t": dataset([{"n": 2}])}, Path("unused"))
    return await engine.run(work, lambda *_: None)


def test_an_endless_query_frees_the_worker_after_its_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(worlds, "CONTRACTS", (*worlds.CONTRACTS, SQL))
    world = World()
    world.join("w1", cpus=1, host_memory_mib=512, device_memory_mib=512)
    queries = [step(f"q{n}", uses=SQL, query=f"{RECURSIVE} -- {n}") for n in range(6)]
    attacker = world.submit(plan(*queries, namespace="team-a"))
    world.tick(1.0)
    owner = world.submit(plan(step("mine", uses=SQL, query="select 1 as n"), namespace="team-b"))
    order: list[str] = []
    while {attacker, owner} & world.machine.state.runs.keys():
        world.tick(0.5)
        world.beat()
        for assignment in world.attempts():
            assert assignment.timeout_s == 24 * 3600, "no attempt of a query is without an end"
            mine = assignment.params["query"] == "select 1 as n"
            order.append("owner" if mine else "attacker")
            end_of(world, assignment, mine=mine)
    assert order.count("attacker") == 6
    assert order.index("owner") <= 2, order
    assert str(world.finals[owner].phase) == "Succeeded"
    assert str(world.finals[attacker].phase) == "Failed"


def end_of(world: World, assignment: Any, *, mine: bool) -> None:
    if mine:
        world.finish(assignment.attempt_id, outputs={"rows": worlds.dataset("1")})
        return
    world.begin(assignment.attempt_id)
    until_s = world.now + DEFAULT_TIMEOUT_S + 5.0
    while world.now < until_s and assignment in world.attempts():
        world.tick(2.5)
        world.beat()
    assert assignment not in world.attempts()
