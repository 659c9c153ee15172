"""Attacker: T4, user code that may use 128 MiB.
Action: creates 20 processes of 100 MiB each, every one in a session of its own.
Must not happen: together they use much more than the call may, or any of them stays.
"""

import asyncio
import sys
from pathlib import Path

import pytest
from tests.attacks.code_calls import call, observed

from flowmesh_core.errors import AttemptError, FailureKind
from flowmesh_worker.engines.code import processes
from flowmesh_worker.engines.code.call_limits import CallLimits, machine_groups
from flowmesh_worker.engines.code.limits import SandboxRequest
from flowmesh_worker.engines.code.process_tree import descendants

pytestmark = pytest.mark.slow
MEMORY_MIB = 128
INTERPRETER_AND_FILES_MIB = 128
MANY = """
    import os, time
    def main():
        for _ in range(20):
            if os.fork() == 0:
                os.setsid()
                held = bytearray(b"x") * (100 << 20)
                time.sleep(600)
        time.sleep(600)
"""
HONEST = """
    import os
    def main():
        for _ in range(4):
            if os.fork() == 0:
                held = bytearray(b"x") * (10 << 20)
                os._exit(0)
        while True:
            try:
                os.wait()
            except ChildProcessError:
                return [{"sum": len(bytearray(b"x") * (60 << 20))}]
"""


@pytest.fixture(params=["with a group", "without one"])
def group(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if request.param == "without one":
        monkeypatch.setattr(processes, "machine_groups", lambda: "the test has none")
        return False
    if isinstance(reason := machine_groups(), str):
        pytest.skip(f"this machine has no memory groups: {reason}")
    return True


async def test_the_processes_of_a_call_share_one_limit(group: bool, tmp_path: Path) -> None:
    async with observed(MEMORY_MIB + INTERPRETER_AND_FILES_MIB) as usage:
        with pytest.raises(AttemptError) as failed:
            await call(tmp_path / "many", MANY, memory_mib=MEMORY_MIB)
    assert failed.value.failure.kind == FailureKind.USER_CODE
    assert "used more than their 128 MiB of memory" in failed.value.failure.message
    if group:  # what is measured without one depends on how busy the machine is
        assert usage.mib <= MEMORY_MIB + INTERPRETER_AND_FILES_MIB
    honest = await call(tmp_path / "honest", HONEST, memory_mib=MEMORY_MIB)
    assert honest.rows == [{"sum": 60 << 20}]


async def test_without_a_control_group_the_first_measurement_above_the_limit_ends_all_processes(
    tmp_path: Path,
) -> None:
    hold = "held = bytearray(b'x') * (60 << 20); print('ready', flush=True); time.sleep(600)"
    code = f"import os, time; [os.fork() for _ in range(2)]; {hold}"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    for _ in range(4):
        await process.stdout.readline()
    for memory_mib, exceeded in ((1_024, ""), (64, "64 MiB of memory")):
        limits = CallLimits(SandboxRequest("", "", {}, {}, 1, memory_mib), _pid=process.pid)
        limits._measure()
        assert limits.exceeded == exceeded
        assert bool(descendants(process.pid)) == (not exceeded)
    process.kill()
    await process.wait()
