"""Users' code in a process beside the worker, as in a pod: no right to make namespaces."""

import asyncio
import ctypes
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from tests.flowmesh_worker.test_code_python import REACHES, run

from flowmesh_core.errors import FailureKind

if TYPE_CHECKING:
    from tests.flowmesh_worker.conftest import World

# As a pod's seccomp profile does: the call that makes namespaces is refused.
LAUNCH = """
import runpy, sys
from flowmesh_worker.engines.code import syscalls
known, syscalls._NUMBERS = syscalls._NUMBERS, {
    "x86_64": (0xC000003E, (272,)), "aarch64": (0xC00000B7, (97,))
}
syscalls.no_new_privileges()
syscalls.refuse_dangerous_calls()
sys.argv = ["sidecar", sys.argv[1]]
runpy.run_module("flowmesh_worker.engines.code.sidecar", run_name="__main__")
"""


PR_CAPBSET_DROP, CAPABILITIES = 24, range(41)


def drop_capabilities() -> None:
    """Leaves root without capabilities, as in a container that drops all of them."""
    for number in CAPABILITIES:
        ctypes.CDLL(None).prctl(PR_CAPBSET_DROP, number, 0, 0, 0)


class Sidecar:
    """A container of users' code in all but the image."""

    def __init__(self, socket: Path) -> None:
        self._socket = socket
        self.process = self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [sys.executable, "-c", LAUNCH, str(self._socket)],
            env={k: v for k, v in os.environ.items() if k in ("PATH", "PYTHONPATH")},
            cwd="/",
            preexec_fn=drop_capabilities,  # noqa: PLW1509 - system calls alone
        )

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def start_again(self) -> None:
        self.process = self._start()

    def has_left(self, path: object) -> bool:
        return os.path.lexists(str(path))


@pytest.fixture
def sidecar(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sidecar]:
    """The workers of the test call it."""
    with tempfile.TemporaryDirectory(prefix="code-", dir="/tmp") as folder:
        monkeypatch.setenv("FLOWMESH_CODE_SOCKET", f"{folder}/socket")
        sidecar = Sidecar(Path(folder) / "socket")
        yield sidecar
        sidecar.process.terminate()
        sidecar.process.wait(30)


async def test_code_reaches_no_file_network_or_process(world: "World", sidecar: Sidecar) -> None:
    other = world.root / "other"
    other.write_text("of somebody else")
    await world.worker()
    code = textwrap.dedent(REACHES).replace(
        '"uid":', '"signal": attempt(lambda: os.kill(pid, 15)), "uid":'
    )
    code = code.replace("def main(path)", "def main(path, pid)")
    end = await run(world, code, args={"path": str(other), "pid": sidecar.process.pid})
    (found,) = await world.rows(end)
    if "without Landlock" in end.log:
        pytest.skip(f"this kernel has no Landlock: {end.log}")
    assert end.log.count("without") == end.log.count("without a memory group"), end.log
    assert "sandbox level landlock" in end.log
    assert found["socket"] == found["network"] == "PermissionError"
    assert found["file"] == found["passwd"] == "PermissionError"
    assert found["signal"] == "PermissionError"
    assert found["temporary"] == "PermissionError", "/tmp is the container's, not the code's"
    assert found["token"] == found["credentials"] == ""


async def test_code_may_write_to_a_private_directory_that_is_removed_after_the_call(
    world: "World", sidecar: Sidecar
) -> None:
    await world.worker()
    code = """
        import os, tempfile
        def main():
            with tempfile.NamedTemporaryFile("w", delete=False) as file:
                file.write("kept?")
            print("printed")
            return [{"others": len(os.listdir(tempfile.gettempdir())), "path": file.name}]
    """
    for _ in range(2):
        end = await run(world, code)
        (found,) = await world.rows(end)
        assert found["others"] == 1
        assert "printed" in end.log
        assert not sidecar.has_left(found["path"])


async def test_an_endless_loop_is_stopped_and_an_error_is_reported(
    world: "World", sidecar: Sidecar
) -> None:
    await world.worker()
    end = await run(world, "def main():\n    while True: pass", timeoutS=0.7)
    assert end.failure is not None
    assert end.failure.kind == FailureKind.TIMEOUT
    end = await run(world, "def main():\n    return [1 / 0]")
    assert end.failure is not None
    assert end.failure.kind == FailureKind.USER_CODE
    assert "ZeroDivisionError" in end.failure.message


async def test_a_call_waits_for_the_restart_of_a_killed_container(
    world: "World", sidecar: Sidecar
) -> None:
    await world.worker()
    sidecar.kill()
    waiting = asyncio.create_task(run(world, "def main():\n    return [{'a': 1}]"))
    sidecar.start_again()
    assert await world.rows(await waiting) == [{"a": 1}]


async def test_a_container_that_ends_during_a_call_is_reported_and_the_call_may_be_repeated(
    world: "World", sidecar: Sidecar
) -> None:
    await world.worker()
    calling = asyncio.create_task(run(world, "def main():\n    while True: print('on')"))
    while not psutil.Process(sidecar.process.pid).children():  # noqa: ASYNC110 - another process
        await asyncio.sleep(0.02)
    sidecar.kill()
    end = await calling
    assert end.failure is not None
    assert end.failure.kind == FailureKind.ENGINE
    assert "does not answer" in end.failure.message
    assert "the pool sets its limit" in end.failure.remedy
