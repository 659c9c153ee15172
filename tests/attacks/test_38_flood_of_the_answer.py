"""Attacker: T1, a tenant whose code runs on a worker.
Action: the code writes gigabytes to the descriptor of its answer, or returns them.
Must not happen: the engine host or the container of users' code grows past the answer's bound.
"""

import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import psutil
import pytest
from tests.flowmesh_worker.conftest import World, serving
from tests.flowmesh_worker.test_code_python import run
from tests.flowmesh_worker.test_code_sidecar import Sidecar

from flowmesh_core.errors import FailureKind
from flowmesh_store.store import open_store
from flowmesh_worker.engines.registry import installed_engines

pytestmark = pytest.mark.slow
FLOOD = """
    import os
    def main():
        piece = bytes(1 << 20)
        for descriptor in range(3, 4096):
            try:
                for _ in range(1_500):
                    os.write(descriptor, piece)
            except OSError:
                pass
        return []
"""
LARGE = """
    def main():
        text = "x" * (1 << 20)
        return [{"text": text} for _ in range(300)]
"""
MANY = """
    import os
    def main():
        count = 8_000_000
        answer = b"\\x81\\xa4rows\\xdd" + count.to_bytes(4, "big") + b"\\x80" * count
        for descriptor in range(3, 4096):
            try:
                while answer:
                    answer = answer[os.write(descriptor, answer):]
            except OSError:
                pass
        os._exit(0)
"""
HONEST = """
    def main():
        return [{"text": "x" * (1 << 20)} for _ in range(20)]
"""
GROWTH_BYTES_MAX = 64 << 20
"""An answer may be 256 MiB, and the flood is 1.5 GB a descriptor."""


@asynccontextmanager
async def worker_at(root: Path) -> AsyncIterator[World]:
    async with serving() as gateway, AsyncExitStack() as stack:
        world = World(gateway, open_store(root / "store"), root, installed_engines(), stack)
        await world.worker()
        yield world


def peaks() -> dict[int, int]:
    """The most memory that each process below this one ever had, those of users' code aside."""
    found = {}
    for process in psutil.Process().children(recursive=True):
        if "engines.code.runner" not in " ".join(process.cmdline()):
            status = Path(f"/proc/{process.pid}/status").read_text().splitlines()
            line = next((line for line in status if line.startswith("VmHWM")), "VmHWM: 0 kB")
            found[process.pid] = int(line.split()[1]) << 10
    return found


@pytest.mark.parametrize("place", ["in the host", "in a container"])
async def test_an_oversized_answer_does_not_fill_the_hosts_memory_and_an_honest_one_is_read(
    place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tempfile.TemporaryDirectory(prefix="code-", dir="/tmp") as folder:
        sidecar = None
        if place == "in a container":
            monkeypatch.setenv("FLOWMESH_CODE_SOCKET", f"{folder}/socket")
            sidecar = Sidecar(Path(folder) / "socket")
        try:
            async with worker_at(tmp_path) as world:
                honest = await run(world, HONEST, memoryMib=64)
                assert honest.failure is None
                assert len(await world.rows(honest)) == 20
                before = peaks()
                for code, memory_mib, reason in (
                    (FLOOD, 64, "the code returned more than 64 MiB"),
                    (LARGE, 1_024, "the code returned more than 256 MiB"),
                    (MANY, 64, "would take more than 320 MiB of memory"),
                ):
                    end = await run(world, code, memoryMib=memory_mib)
                    assert end.failure is not None
                    assert end.failure.kind == FailureKind.USER_CODE
                    assert reason in end.failure.message
                after = peaks()
                assert before.keys() <= after.keys()
                for process, had in before.items():
                    assert after[process] - had <= GROWTH_BYTES_MAX
                assert (await run(world, HONEST, memoryMib=64)).failure is None
        finally:
            if sidecar is not None:
                sidecar.process.terminate()
                sidecar.process.wait(30)
