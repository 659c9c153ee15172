"""Attacker: T4, user code of a step in the container that also holds code of services.
Action: leaves processes that signal, and read the files of, all others of the container; ends.
Must not happen: resident code ends, is signalled, or lives beyond its host; it still answers.
"""

import os
from typing import Any

import msgspec
import psutil
import pytest
from tests.attacks.test_k4_code_of_another_tenant import Container, fixed, level, switching

from flowmesh_worker.engines.code.component_frames import BatchCall, LoadedCode
from flowmesh_worker.engines.code.sandboxed_code import SandboxedCode
from flowmesh_worker.engines.code.sidecar_residents import SidecarResidents

pytestmark = pytest.mark.slow
__all__ = ["fixed", "level", "switching"]
CODE = """
import os, signal
hits = []
signal.signal(signal.SIGUSR1, lambda *_: hits.append(1))
with open(os.path.join(os.environ["TMPDIR"], "own"), "w") as file:
    file.write("of the service")

def compute(batch):
    found = {"uid": os.getuid(), "pid": os.getpid(), "hits": len(hits)}
    return [{**found, "file": os.path.abspath(file.name)} for _ in batch]
"""
ESCAPES = """
import os, signal, time

def compute(batch):
    supervisor = os.getppid()
    if os.fork() == 0:
        os.setsid()
        time.sleep(600)
    try:
        os.kill(supervisor, signal.SIGKILL)
    except OSError:
        pass
    return [{} for _ in batch]
"""
READS = """
    import os
    def main(marks, container):
        def attempt(what):
            try:
                return what()
            except OSError as e:
                return type(e).__name__
        path = "{path}"
        return [{{"read": attempt(lambda: open(path).read()), "uid": os.getuid()}}]
"""


def has(path: str) -> bool:
    return os.path.exists(path)


def runs(pid: int) -> bool:
    """Whether a process has not ended; it may still have to be reaped."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


async def asked(code: SandboxedCode) -> dict[str, Any]:
    (result,) = await code.run("c", [BatchCall(b"{}", {}, "", wants_body=True)], 20.0)
    found: dict[str, Any] = msgspec.json.decode(result.body)
    return found


async def test_calls_neither_end_nor_reach_resident_code_of_the_same_container(
    switching: Container,
) -> None:
    residents = SidecarResidents(str(switching.socket))
    loaded = (LoadedCode("c", CODE, "compute", 8),)
    own, other = (SandboxedCode(loaded, residents, 64, t) for t in ("a", "b"))
    await own.start()
    await other.start()
    try:
        before = await asked(own), await asked(other)
        assert before[0]["uid"] != before[1]["uid"]
        for tenant in ("a", "b"):
            await switching.attack(tenant)
            (found,) = (await switching.call(READS.format(path=before[0]["file"]), tenant)).rows
            assert found["read"] in ("PermissionError", "FileNotFoundError")
            assert found["uid"] not in (before[0]["uid"], before[1]["uid"])
        assert (await asked(own), await asked(other)) == before
        assert has(before[0]["file"])
    finally:
        await own.close()
        await other.close()
    assert not has(before[0]["file"])
    assert not runs(before[0]["pid"])


async def test_resident_code_that_ends_its_supervisor_leaves_no_process(fixed: Container) -> None:
    residents = SidecarResidents(str(fixed.socket))
    own = SandboxedCode((LoadedCode("c", CODE, "compute", 8),), residents, 64, "a")
    escaping = SandboxedCode((LoadedCode("c", ESCAPES, "compute", 8),), residents, 64, "a")
    await own.start()
    await escaping.start()
    before = await asked(own)
    await escaping.run("c", [BatchCall(b"{}", {}, "", wants_body=True)], 20.0)
    await escaping.close()
    assert (await asked(own))["pid"] == before["pid"]
    await own.close()
    assert psutil.Process(fixed.process.pid).children(recursive=True) == []
