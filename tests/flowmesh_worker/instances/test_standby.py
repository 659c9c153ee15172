"""Hosts import libraries ahead of the engine that needs them, and never stand in a lane's way."""

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from tests.flowmesh_worker.preloading import COLOURS, WAVES
from tests.flowmesh_worker.prewarming import FIRST, SECOND, THIRD, host_of, until_open

from flowmesh_worker.engines import registry
from flowmesh_worker.engines.llm.generate import LlmGenerate
from flowmesh_worker.engines.llm.score import LlmScore
from flowmesh_worker.engines.preload import TRANSFORMERS, TRL, VLLM_ON_CPU, VLLM_ON_DEVICES
from flowmesh_worker.engines.registry import EngineEntry, Engines, installed_engines
from flowmesh_worker.instances import standby_hosts

if TYPE_CHECKING:
    from tests.flowmesh_worker.conftest import World

    from flowmesh_worker.agent.agent import Agent
    from flowmesh_worker.engines.preload import HostPreload
    from flowmesh_worker.instances.standby_hosts import StandbyProcess

ENGINE = "test.noop"


@pytest.fixture
async def agent(world: "World") -> "Agent":
    contract = world.engines.contract(ENGINE)
    assert contract is not None
    heavy = replace(contract, needs_gpu_class="accelerator")
    world.engines = Engines([EngineEntry(heavy, "tests.flowmesh_worker.preloading:Preparing")])
    return await world.worker(memory_mib=1000)


def hosts(agent: "Agent") -> "dict[HostPreload, StandbyProcess]":
    return agent.standby.by_preload()


def pid_of(agent: "Agent", preparation: "HostPreload") -> int:
    return hosts(agent)[preparation].process.pid


async def until_prepared(world: "World", agent: "Agent", *wanted: "HostPreload") -> None:
    await world.gateway.until(
        lambda: (
            hosts(agent).keys() == set(wanted) and all(host.ready for host in hosts(agent).values())
        )
    )


async def run(world: "World", **changes: Any) -> None:
    defaults: dict[str, Any] = {"memory_mib": 100, "params": {"value": 1}}
    end = await world.gateway.do(world.assignment(ENGINE, **(defaults | changes)))
    assert end.failure is None, end.failure


async def test_the_next_engine_of_a_kind_uses_a_host_that_has_imported_its_libraries(
    world: "World", agent: "Agent"
) -> None:
    await world.gateway.desire(prewarm=())
    await run(world, signature=FIRST)
    await until_prepared(world, agent, COLOURS)
    ready = pid_of(agent, COLOURS)
    await run(world, signature=SECOND)
    assert host_of(agent, SECOND).process.pid == ready
    await until_prepared(world, agent, COLOURS)
    assert pid_of(agent, COLOURS) != ready
    await run(world, signature=THIRD, signature_params={"library": "waves"})
    await until_prepared(world, agent, COLOURS, WAVES)
    await world.leave()
    assert not hosts(agent)


async def test_a_standby_host_that_is_not_prepared_yet_is_used_too(
    world: "World", agent: "Agent"
) -> None:
    opening = world.prewarm(ENGINE, signature=FIRST, memory_mib=100)
    await world.gateway.desire(prewarm=(opening,))
    await until_open(world, FIRST)
    await until_prepared(world, agent, COLOURS)
    first = host_of(agent, FIRST)
    assert not agent.machine.state.instances[FIRST].has_run
    # The first folder was made for the host that was to be prepared, the second for the next one.
    assert first.folder.name == "host-1"
    assert [host.folder.name for host in hosts(agent).values()] == ["host-2"]
    assert first.folder.exists()


async def test_a_library_that_does_not_import_is_reported_once_and_work_continues(
    world: "World", agent: "Agent", caplog: pytest.LogCaptureFixture
) -> None:
    broken: dict[str, Any] = {"signature_params": {"library": "broken"}}
    await world.gateway.desire(prewarm=())
    with caplog.at_level(logging.WARNING, standby_hosts.__name__):
        await run(world, signature=FIRST, **broken)
        await world.gateway.until(lambda: agent.machine.standby._failed)
        await run(world, signature=SECOND, **broken)
        await run(world, signature=THIRD)
        await until_prepared(world, agent, COLOURS)
    (said,) = [r.getMessage() for r in caplog.records if r.name == standby_hosts.__name__]
    assert "no_such_library" in said


async def test_an_engine_that_cannot_name_its_libraries_runs_without_a_standby_host(
    world: "World", agent: "Agent", caplog: pytest.LogCaptureFixture
) -> None:
    await world.gateway.desire(prewarm=())
    raising = {"library": "raises"}
    with caplog.at_level(logging.WARNING, registry.__name__):
        await run(world, signature=FIRST, signature_params=raising)
        await run(world, signature=SECOND, signature_params=raising)
    assert not hosts(agent)
    assert any("implementation" in r.getMessage() for r in caplog.records)
    await run(world, signature=THIRD)
    await until_prepared(world, agent, COLOURS)


async def test_a_prepared_host_gives_its_memory_to_an_instance_that_has_none(
    world: "World", agent: "Agent"
) -> None:
    await world.gateway.desire(prewarm=())
    await run(world, signature=FIRST)
    await until_prepared(world, agent, COLOURS)
    folder = hosts(agent)[COLOURS].folder
    await run(world, signature=SECOND, signature_params={"library": "waves"}, memory_mib=900)
    assert COLOURS not in hosts(agent)
    await world.gateway.until(lambda: not folder.exists())
    budget = agent.machine.memory
    assert budget.reserve(1, 0) is None
    assert [lane.signature for lane in agent.hosts] == [FIRST, SECOND]


def test_engines_on_the_same_library_use_the_same_kind_of_standby_host() -> None:
    engines = installed_engines()
    assert engines.preparation("llm.generate", {}) == VLLM_ON_CPU
    assert engines.preparation("llm.agent", {"implementation": "vllm"}) == VLLM_ON_CPU
    assert engines.preparation("llm.score", {"method": "judge"}) == VLLM_ON_CPU
    assert engines.preparation("llm.score", {"method": "reward"}) == TRANSFORMERS
    assert engines.preparation("llm.embed", {}) == TRANSFORMERS
    assert engines.preparation("train.sft", {}) == engines.preparation("train.ppo", {}) == TRL
    assert engines.preparation("data.sql", {}) is None
    assert engines.preparation("nobody.knows", {}) is None
    # What vLLM reads on import must be what the engine asks for.
    assert LlmGenerate.prepares({}, on_devices=True) == VLLM_ON_DEVICES
    assert LlmGenerate.prepares({"batchInvariant": False}, on_devices=True) is None
    assert LlmScore.prepares({"method": "judge", "batchInvariant": False}, on_devices=True) is None
