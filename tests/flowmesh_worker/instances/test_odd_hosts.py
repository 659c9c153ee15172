"""Whatever a host sends or does, the worker and the attempts of other hosts go on."""

import errno
import os
from typing import TYPE_CHECKING, Any

import pytest

from flowmesh_core.errors import FailureKind
from flowmesh_core.identity import digest_bytes
from flowmesh_worker.engines.registry import EngineEntry, Engines
from flowmesh_worker.instances.host_process import HostProcess

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


def sends(world: "World", *frames: list[Any], **changes: Any) -> "Assignment":
    """An attempt whose host sends these frames while it runs."""
    return world.assignment(ENGINE, params={"frames": list(frames), "value": 1}, **changes)


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


async def test_a_host_that_hangs_after_a_failed_load_fails_its_attempt(
    odd: "World", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("flowmesh_worker.instances.engine_hosts.CLOSE_WITHIN_S", 0.2)
    await odd.worker()
    end = await odd.gateway.do(odd.assignment(ENGINE, signature_params={"broken": True}), 30)
    assert end.failure is not None
    assert end.failure.kind == FailureKind.ENGINE
    assert "no such model" in end.failure.message


async def test_a_checkpoint_at_an_invalid_path_does_not_end_its_host(odd: "World") -> None:
    agent = await odd.worker()
    frames = [["checkpointed", "own", path, 0.5] for path in ("", "\0", "/", "x" * 5000)]
    end = await odd.gateway.do(sends(odd, *frames, attempt_id="own"))
    assert end.failure is None, end.failure
    assert len(list(agent.hosts)) == 1


async def test_a_host_that_cannot_be_started_leaves_no_file_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    real, made = os.pipe, list[int]()

    def pipe() -> tuple[int, int]:
        if made:
            raise OSError(errno.EMFILE, "too many open files")
        made.extend(real())
        return made[0], made[1]

    monkeypatch.setattr(os, "pipe", pipe)
    process = HostProcess(lambda _: None, lambda _: None, lambda _: None)
    with pytest.raises(OSError, match="too many open files"):
        await process.start({})
    for descriptor in made:
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)


async def test_an_error_that_is_not_utf_8_ends_only_its_attempt(odd: "World") -> None:
    agent = await odd.worker()
    end = await odd.gateway.do(odd.assignment(ENGINE, params={"says": "error"}))
    assert end.failure is not None
    assert end.failure.kind == FailureKind.ENGINE
    assert "\\udcff" in end.failure.message
    assert (await odd.gateway.do(odd.assignment(ENGINE, params={"value": 1}))).failure is None
    assert len(list(agent.hosts)) == 1


async def test_a_host_that_cannot_send_a_message_ends_as_crashed(odd: "World") -> None:
    await odd.worker()
    end = await odd.gateway.do(odd.assignment(ENGINE, params={"says": "progress"}))
    assert end.failure is not None
    assert end.failure.kind == FailureKind.HOST_CRASHED
    assert (await odd.gateway.do(odd.assignment(ENGINE, params={"value": 1}))).failure is None
