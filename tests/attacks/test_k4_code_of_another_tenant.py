"""Attacker: T4, user code of one tenant in the container where the next tenant's code will run.
Action: ends its supervisor, leaves a process behind that reads, signals and writes, and files.
Must not happen: that process or a file of it reaches the next tenant's call, or outlives into it.
"""

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from tests.flowmesh_worker.test_code_sidecar import drop_capabilities

from flowmesh_core.errors import AttemptError, FailureKind
from flowmesh_worker.engines.code import landlock
from flowmesh_worker.engines.code.limits import SandboxResult
from flowmesh_worker.engines.code.locked_calls import LockedCalls
from flowmesh_worker.engines.code.sandbox_level import CodeSandbox
from flowmesh_worker.engines.code.sidecar_client import describe_sidecar

pytestmark = pytest.mark.slow
# As under a pod's seccomp profile, namespaces are refused; WEAK has no Landlock either. Read by the
# container's interpreter and by those that it starts.
SITE = """
from flowmesh_worker.engines.code import landlock, syscalls
def refuse(*arguments):
    raise OSError(1, "not permitted")
syscalls.unshare = refuse
if {weak}:
    landlock.is_supported = lambda: False
"""
LEAVES = """
    import os, signal, time
    def main(marks, container):
        supervisor = os.getppid()
        if os.fork() == 0:
            os.setsid()
            if os.fork():
                os._exit(0)
            for descriptor in range(3, 4096):
                try: os.close(descriptor)
                except OSError: pass
            while True:
                for name in os.listdir("/proc"):
                    try:
                        pid = at = int(name)
                        while at > 1 and at != container:
                            at = int(open(f"/proc/{at}/stat").read().rpartition(")")[2].split()[1])
                        if at == container and pid not in (container, os.getpid()):
                            os.kill(pid, signal.SIGUSR1)
                    except (OSError, ValueError):
                        pass
                time.sleep(0.002)
        try:
            os.kill(supervisor, signal.SIGKILL)
        except OSError:
            pass
        try:
            open(f"/tmp/{marks}", "w").write("of the first")
        except OSError:
            pass
        return [{"uid": os.getuid(), "pid": os.getpid()}]
"""
LOOKS = """
    import os, signal, time
    hits = []
    signal.signal(signal.SIGUSR1, lambda *_: hits.append(1))
    def main(marks, container):
        time.sleep(0.3)
        return [{"uid": os.getuid(), "hits": len(hits), "file": os.path.exists(f"/tmp/{marks}")}]
"""


class Container:
    """The container of users' code, with the right to switch users or without."""

    def __init__(self, folder: Path, level: str, *, switches: bool) -> None:
        self.socket = folder / "socket"
        self.folder = folder
        self.marks = f"marks-{os.getpid()}-{level}-{switches}"
        site = folder / "site"
        site.mkdir()
        (site / "sitecustomize.py").write_text(SITE.format(weak=level == "weak"))
        folder.chmod(0o777)
        path = f"{site}:{os.environ.get('PYTHONPATH', '')}:{':'.join(p for p in sys.path if p)}"
        self._command = [sys.executable, "-m", "flowmesh_worker.engines.code.sidecar"]
        self._environment = {"PATH": os.environ["PATH"], "PYTHONPATH": path}
        self._switches = switches
        self.process = self._start()

    def _start(self) -> "subprocess.Popen[bytes]":
        return subprocess.Popen(
            [*self._command, str(self.socket)],
            env=self._environment,
            cwd="/",
            preexec_fn=None if self._switches else drop_capabilities,  # noqa: PLW1509 - system calls alone
        )

    async def call(self, code: str, tenant: str) -> SandboxResult:
        calls = LockedCalls(self.folder / "calls", "the test")
        return await calls.call(
            textwrap.dedent(code), "main", inputs={}, timeout_s=30, memory_mib=64,
            args={"marks": self.marks, "container": self.process.pid}, tenant=tenant,
        )  # fmt: skip

    async def attack(self, tenant: str) -> None:
        """Makes the call that leaves things behind; it may end with its supervisor."""
        with contextlib.suppress(AttemptError):
            await self.call(LEAVES, tenant)

    def has_marks(self) -> bool:
        return Path("/tmp", self.marks).exists()

    async def restarted(self) -> CodeSandbox:
        """Starts the container anew when it has ended, as a kubelet does."""
        description = asyncio.create_task(describe_sidecar(str(self.socket)))
        await asyncio.to_thread(self.process.wait, 10)
        self.kill_rest()
        self.process = self._start()
        return await description

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(30)
        self.kill_rest()
        Path("/tmp", self.marks).unlink(missing_ok=True)

    def kill_rest(self) -> None:
        """Kills what is left, as the end of a container's PID namespace does."""
        for process in psutil.process_iter(["environ"]):
            if str(self.folder) in (process.info["environ"] or {}).get("PYTHONPATH", ""):
                process.kill()


@pytest.fixture(params=["landlock", "weak"])
def level(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def container(level: str, patch: pytest.MonkeyPatch, *, switches: bool) -> Iterator[Container]:
    if level == "landlock" and not landlock.is_supported():
        pytest.skip("this kernel has no Landlock of version 6")
    with tempfile.TemporaryDirectory(prefix="k4-", dir="/tmp") as folder:
        (Path(folder) / "calls").mkdir()
        found = Container(Path(folder), level, switches=switches)
        patch.setenv("FLOWMESH_CODE_SOCKET", str(found.socket))
        yield found
        found.stop()


@pytest.fixture
def switching(level: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Container]:
    """As with ``hostUsers: false``: root, which may switch uids."""
    if os.geteuid() != 0:
        pytest.skip("only root may switch users")
    if level == "landlock" and not reachable(Path(sys.base_prefix)):
        pytest.skip(f"other users cannot read the interpreter in {sys.base_prefix}")
    yield from container(level, monkeypatch, switches=True)


@pytest.fixture
def fixed(level: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Container]:
    """As in a pod without a user namespace: one user for all code."""
    yield from container(level, monkeypatch, switches=False)


async def test_each_tenant_has_its_own_uid_and_leaves_no_files_or_processes_behind(
    switching: Container,
) -> None:
    sandbox = await describe_sidecar(str(switching.socket))
    assert not sandbox.single_tenant
    await switching.attack("a")
    (b,) = (await switching.call(LOOKS, "b")).rows
    assert (b["uid"], b["hits"], b["file"]) == (10_101, 0, False)
    assert not of_user(10_100)
    assert not switching.has_marks()
    (again,) = (await switching.call(LOOKS, "a")).rows
    assert (again["uid"], again["hits"], again["file"]) == (10_100, 0, False)


async def test_a_container_with_one_user_serves_one_tenant_for_its_life(fixed: Container) -> None:
    sandbox = await describe_sidecar(str(fixed.socket))
    assert sandbox.single_tenant
    await fixed.attack("a")
    with pytest.raises(AttemptError) as refused:
        await fixed.call(LOOKS, "b")
    assert refused.value.failure.kind == FailureKind.ENGINE
    assert "another namespace" in refused.value.failure.message
    # The same tenant goes on; a new worker gets a container that has served nobody.
    (again,) = (await fixed.call(LOOKS, "a")).rows
    assert (again["uid"], again["hits"]) == (os.getuid(), 0)
    assert (await fixed.restarted()).single_tenant
    (b,) = (await fixed.call(LOOKS, "b")).rows
    assert b["hits"] == 0


def reachable(path: Path) -> bool:
    """Whether every user may read a directory."""
    return all(p.stat().st_mode & 0o5 == 0o5 for p in (path, *path.parents))


def of_user(uid: int) -> set[int]:
    """The processes of a user."""
    found = set()
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            try:
                if path.stat().st_uid == uid:
                    found.add(int(path.name))
            except OSError:
                continue
    return found
