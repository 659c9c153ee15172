"""What a worker does with attempts, on real hosts."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.flowmesh_worker.conftest import World


async def test_a_noop_returns_its_value_inside_the_report(world: "World") -> None:
    await world.worker()
    end = await world.gateway.do(world.assignment("test.noop", params={"value": 7}))
    assert end.failure is None
    metrics = end.outputs["metrics"]
    assert metrics.value == {"value": 7}
    assert metrics.digest in end.inline
    assert end.usage.units == 1
    assert end.usage.peak_memory_mib > 0


async def test_a_query_reads_its_input_from_the_store(world: "World") -> None:
    await world.worker()
    rows = await world.dataset([{"q": "a", "n": i} for i in range(1000)])
    end = await world.gateway.do(
        world.assignment(
            "data.sql",
            params={"query": "select q, sum(n) as s from rows group by all"},
            inputs={"rows": rows},
        )
    )
    assert await world.rows(end) == [{"q": "a", "s": 499500}]
    assert end.usage.fetch_s > 0
    assert end.usage.units == 1000
    assert "duckdb" in end.libraries
