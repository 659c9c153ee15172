"""Resident sandboxes of component hosts in the container of users' code, as in a pod."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import psutil
import pytest
from tests.flowmesh_worker.test_code_sidecar import Sidecar, sidecar

from flowmesh_core.errors import AttemptError, FailureKind
from flowmesh_worker.engines.code.component_frames import (
    BatchCall,
    CallResult,
    LoadedCode,
    ResultKind,
)
from flowmesh_worker.engines.code.limits import SandboxRequest
from flowmesh_worker.engines.code.sandboxed_code import SandboxedCode
from flowmesh_worker.engines.code.sidecar_client import call_sidecar
from flowmesh_worker.engines.code.sidecar_residents import SidecarResidents

pytestmark = pytest.mark.slow
__all__ = ["sidecar"]
CODE = """
import os, subprocess, sys

def compute(batch):
    return [run(call) for call in batch]

def run(call):
    if call.get("take"):
        kept.append(bytearray(call["take"] << 20))
    return {"pid": os.getpid(), "text": call.get("text", "")}

kept = []
print("loaded")
"""
WITHIN_S = 20.0


@contextlib.asynccontextmanager
async def resident(tenant: str = "team-a", code: str = CODE) -> AsyncIterator[SandboxedCode]:
    """Yields code that runs in the container whose socket the fixture has set."""
    residents = SidecarResidents(os.environ["FLOWMESH_CODE_SOCKET"])
    found = SandboxedCode((LoadedCode("c", code, "compute", 8),), residents, 128, tenant)
    await found.start()
    try:
        yield found
    finally:
        await found.close()


async def asked(code: SandboxedCode, **call: Any) -> CallResult:
    (result,) = await code.run(
        "c", [BatchCall(msgspec.json.encode(call), {}, "", wants_body=True)], WITHIN_S
    )
    return result


def residents_of(sidecar: Sidecar) -> list[psutil.Process]:
    """The processes of resident sandboxes in the container."""
    below = psutil.Process(sidecar.process.pid).children(recursive=True)
    return [p for p in below if "engines.code.resident" in " ".join(p.cmdline())]


async def call_of(tenant: str) -> None:
    """Runs one call of ``code.python`` in the container, which leaves a process behind."""
    code = "import os\ndef main():\n    if os.fork() == 0:\n        os.setsid()\n    return []"
    task = SandboxRequest(code, "main", {}, {}, 10, 64, tenant=tenant)

    async def take(_: bytes) -> None:
        pass

    await call_sidecar(os.environ["FLOWMESH_CODE_SOCKET"], task, WITHIN_S, take)


async def test_the_end_of_a_call_leaves_resident_code_and_its_host_ends_it(
    sidecar: Sidecar, capsys: pytest.CaptureFixture[str]
) -> None:
    async with resident() as code, resident() as other:
        before = msgspec.json.decode((await asked(code, text="one")).body)
        assert residents_of(sidecar)
        await asyncio.gather(call_of("team-a"), asked(other), asked(code))
        await call_of("team-a")
        after = msgspec.json.decode((await asked(code, text="two")).body)
        assert (after["pid"], after["text"]) == (before["pid"], "two")
        assert (await asked(other)).kind is ResultKind.OK
    assert residents_of(sidecar) == []
    assert "loaded" in capsys.readouterr().out


async def test_a_call_that_takes_too_much_memory_is_named_and_the_next_one_is_answered(
    sidecar: Sidecar,
) -> None:
    async with resident() as code:
        result = await asked(code, take=400)
        assert result.kind is ResultKind.RAISED
        assert "MemoryError" in result.error or "128 MiB of memory" in result.error
        assert (await asked(code)).kind is ResultKind.OK


async def test_code_is_loaded_again_after_its_container_has_ended(sidecar: Sidecar) -> None:
    async with resident() as code:
        assert (await asked(code)).kind is ResultKind.OK
        sidecar.kill()
        sidecar.start_again()
        assert (await asked(code)).kind is ResultKind.RAISED, "the call that found it gone"
        assert (await asked(code)).kind is ResultKind.OK


async def test_code_that_does_not_load_is_an_error_of_the_user(sidecar: Sidecar) -> None:
    with pytest.raises(AttemptError) as raised:
        async with resident(code="1 / 0"):
            pass
    assert raised.value.failure.kind == FailureKind.USER_CODE
    assert "ZeroDivisionError" in raised.value.failure.message
    assert residents_of(sidecar) == []


async def test_a_container_that_cannot_switch_users_refuses_the_code_of_a_second_tenant(
    sidecar: Sidecar,
) -> None:
    async with resident("team-a"):
        with pytest.raises(AttemptError) as raised:
            async with resident("team-b"):
                pass
        assert "cannot switch uids" in raised.value.failure.message
        async with resident("team-a") as code:
            assert (await asked(code)).kind is ResultKind.OK
