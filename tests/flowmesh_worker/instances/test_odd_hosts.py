"""Whatever a host sends or does, the worker and the attempts of other hosts go on."""

from typing import TYPE_CHECKING, Any

import pytest

from flowmesh_core.identity import digest_bytes
from flowmesh_worker.engines.registry import EngineEntry, Engines

if TYPE_CHECKING:
    from tests.flowmesh_worker.conftest import World

    from flowmesh_core.protocol.messages import Assignment

ENGINE = "test.noop"
USAGE = [0.0, 0, 0, 0, 0.0, 0]


@pytest.fixture
def odd(world: "World") -> "World":
    contract = world.engines.contract(ENGINE)
    assert contract is not None
    entry = EngineEntry(contract, "tests.flowmesh_worker.odd_frames:OddFrames")
    world.engines = Engines([entry])
    return world


def sends(world: "World", *frames: list[Any], **params: Any) -> "Assignment":
    """An attempt whose host sends these frames while it runs."""
    return world.assignment(ENGINE, params={"frames": list(frames), "value": 1, **params})


async def test_a_host_cannot_report_for_an_attempt_of_another_host(odd: "World") -> None:
    await odd.worker()
    victim = odd.assignment(ENGINE, params={"stay": True}, signature=digest_bytes(b"victim"))
    await odd.gateway.assign(victim)
    await odd.gateway.phase(victim.attempt_id, "running")
    directory = odd.root / "forged"
    directory.mkdir()
    forged = sends(
        odd,
        ["progressed", victim.attempt_id, 0.5, 1.0, "forged"],
        ["checkpointed", victim.attempt_id, str(directory), 0.5],
        ["ended", victim.attempt_id, {}, None, USAGE, False, None],
    )
    assert (await odd.gateway.do(forged)).failure is None
    assert all(p.unit != "forged" for p in odd.gateway.progress[victim.attempt_id])
    assert directory.exists()
    assert victim.attempt_id not in odd.gateway.ends
