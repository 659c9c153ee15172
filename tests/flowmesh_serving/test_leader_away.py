"""The leader of a cluster is away under load: its routers ask it for services, hubs use TLS.

``make nightly JOBS=serving-leader-cluster`` has it away for a minute.
"""

import asyncio
from pathlib import Path

import pytest
from tests.flowmesh_serving.cluster_fabric import STAGED, cluster_fabric
from tests.flowmesh_serving.request_load import EchoLoad, StagesLoad
from tests.flowmesh_serving.stack import SERVICE

RATE, STAGES_RATE = 16.0, 4.0
"""A part of the capacity, so that a busy machine refuses none either."""


async def until_served(load: EchoLoad, more: float) -> None:
    """Waits until so many more requests have ended."""
    wanted = load.ended + more
    while load.ended < wanted:  # noqa: ASYNC110 - by what was served
        await asyncio.sleep(0.02)


async def without_leader(root: Path, seconds: float) -> None:
    async with cluster_fabric(root) as fabric:
        placed, engines = await fabric.placed(), fabric.engines()
        path = f"/v1/services/{STAGED}:invoke"
        echo = EchoLoad(fabric, RATE, token=fabric.tokens[SERVICE])
        stages = StagesLoad(fabric, STAGES_RATE, path=path, token=fabric.tokens[STAGED])
        with fabric.watched() as fewer:
            async with echo.running(), stages.running():
                await until_served(echo, RATE)
                fabric.leader.kill()
                await until_served(echo, RATE * seconds)
                assert await fabric.leader.start(fabric.http) > 1
                # Its first plan, which has to be the one that was.
                assert await fabric.placed() == placed
                await until_served(echo, 5 * RATE)
                assert await fabric.placed() == placed
        print(  # noqa: T201 - the figures
            f"without the leader of a cluster for {seconds:.0f} s: {echo.ok + stages.ok} right, "
            f"{len(echo.wrong) + len(stages.wrong)} wrong, "
            f"{len(echo.failed) + len(stages.failed)} failed, {echo.refused + stages.refused} "
            "refused"
        )
        for load in (echo, stages):
            assert (load.failed, load.wrong, load.doubled, load.refused) == ({}, [], [], 0)
        assert fewer == set(), "each router had every replica all the time"
        assert fabric.engines() == engines, "no hub and no engine was started again"


@pytest.mark.slow
async def test_no_request_fails_and_no_replica_moves_while_the_leader_is_away(
    tmp_path: Path,
) -> None:
    await without_leader(tmp_path, 4.0)


@pytest.mark.nightly
async def test_no_request_fails_while_the_leader_of_a_cluster_is_away_for_a_minute(
    tmp_path: Path,
) -> None:
    await without_leader(tmp_path, 60.0)
