"""Attacker: T4, user code.
Action: 22 ways out of the sandbox: files, network, processes, kernel interfaces, inherited handles.
Must not happen: any of them succeeds; the same process still computes and writes its own files.
"""

import os
import socket
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.attacks.code_calls import call
from tests.attacks.test_36_fork_bomb import environment, path

from flowmesh_worker.engines.code import landlock, processes
from flowmesh_worker.engines.code.sandbox_level import detect_level

pytestmark = pytest.mark.slow
# Each is an expression; it holds if it raises, or gives False, None or an empty value.
ESCAPES = {
    "read a file of the machine": "open('/etc/passwd').read()",
    "read the worker's files": "open({secret!r}).read()",
    "list a directory of the machine": "os.listdir({folder!r})",
    "write to the interpreter": "open(os.__file__, 'a')",
    "write below /usr": "open('/usr/x', 'w')",
    "follow a symbolic link out": "(os.symlink({secret!r}, own('link')), open(own('link')).read())",
    "make a hard link": "(os.link({secret!r}, own('hard')), open(own('hard')).read())",
    "change the root": "(os.chroot('/tmp'), os.listdir('/etc'))",
    "open a socket": "socket.socket()",
    "connect to a Unix socket": "socket.socket(socket.AF_UNIX).connect({unix!r})",
    "make a pair of sockets": "socket.socketpair()[0].family and None or socket.create_connection"
    "(('127.0.0.1', {port}), 1)",
    "signal the worker": "os.kill({worker}, 0) or 'signalled'",
    "read the worker's environment": "open('/proc/{worker}/environ').read()",
    "read the worker's memory": "open('/proc/{worker}/mem', 'rb').read(1)",
    "trace a process": "libc.ptrace(16, {worker}, 0, 0) == 0",
    "mount a file system": "libc.mount(b'none', b'/tmp', b'proc', 0, None) == 0",
    "create a user namespace": "libc.unshare(0x10000000) == 0 and libc.unshare(0x20000) == 0",
    "enter a namespace": "libc.setns(os.open('/proc/1/ns/net', 0), 0) == 0",
    "use io_uring": "libc.syscall(425, 8, 0) >= 0",
    "become root": "(os.setuid(0), open('/etc/shadow').read())",
    "read inherited descriptors": "[os.readlink(f'/proc/self/fd/{{n}}') for n in range(3, 4096) if "
    "os.path.exists(f'/proc/self/fd/{{n}}') and "
    "'pipe' not in os.readlink(f'/proc/self/fd/{{n}}')]",
    "find credentials": "[k for k in os.environ if k.startswith(('AWS_', 'FLOWMESH_', 'HF_'))]",
}
# Held by namespaces or Landlock; on a machine with neither nothing keeps these.
NEEDS_A_LEVEL = frozenset({
    "read a file of the machine", "read the worker's files", "list a directory of the machine",
    "write to the interpreter", "write below /usr", "follow a symbolic link out",
    "make a hard link", "change the root", "signal the worker", "become root",
    "read the worker's environment", "read the worker's memory",
})  # fmt: skip
CODE = """
    import ctypes, os, socket, tempfile
    libc = ctypes.CDLL(None, use_errno=True)
    def own(name):
        return os.path.join(tempfile.gettempdir(), f"{name}-{os.getuid()}")
    def main(escapes):
        found = []
        for name, text in escapes.items():
            try:
                value = eval(text)
            except BaseException as error:
                found.append({"name": name, "held": True, "gave": type(error).__name__})
            else:
                found.append({"name": name, "held": not value, "gave": repr(value)[:80]})
        with open(own("mine"), "w+") as file:
            file.write("mine")
            file.seek(0)
            found.append({"name": "control", "held": file.read() == "mine", "gave": "mine"})
        return found
"""
LEVELS = {"namespaces": "userns", "Landlock": "landlock", "neither": "weak"}
REFUSALS = {
    "namespaces": "",
    "Landlock": "syscalls.unshare = refuse\n",
    "neither": "syscalls.unshare = refuse\nlandlock.is_supported = lambda: False\n",
}


@pytest.fixture(params=REFUSALS)
def place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """What the machine gives; as root or as the user that runs the tests."""
    name = str(request.param)
    if name == "namespaces" and detect_level(root=os.geteuid() == 0) != "userns":
        pytest.skip("this machine refuses namespaces")
    if name == "Landlock" and not landlock.is_supported():
        pytest.skip("this kernel has no Landlock of version 6")
    if name == "Landlock" and os.geteuid() == 0 and not open_to_all(Path(os.__file__)):
        pytest.skip(f"other users cannot read the interpreter at {os.__file__}")
    site = tmp_path / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        "import socket, tempfile\n"  # where other users cannot read the interpreter
        "from flowmesh_worker.engines.code import landlock, syscalls\n"
        "def refuse(flags):\n    raise OSError(1, 'not permitted')\n" + REFUSALS[name]
    )
    monkeypatch.setattr(processes, "sandbox_environment", lambda: {**environment(), **path(site)})
    return name


@pytest.fixture
def targets(tmp_path: Path) -> Iterator[dict[str, object]]:
    """What the code would like to reach: all of it is there for its rightful owner."""
    secret = tmp_path / "secret"
    secret.write_text("of somebody else")
    secret.chmod(0o600)
    with socket.socket(socket.AF_UNIX) as unix, socket.create_server(("127.0.0.1", 0)) as server:
        unix.bind(str(tmp_path / "s"))
        unix.listen()
        with socket.socket(socket.AF_UNIX) as control:
            control.connect(str(tmp_path / "s"))
        port = server.getsockname()[1]
        socket.create_connection(("127.0.0.1", port), 5).close()
        assert secret.read_text()
        yield {
            "secret": str(secret),
            "folder": str(tmp_path),
            "unix": str(tmp_path / "s"),
            "port": port,
            "worker": os.getpid(),
        }


async def test_no_escape_succeeds(place: str, targets: dict[str, object], tmp_path: Path) -> None:
    expected = {n for n in ESCAPES if place != "neither" or n not in NEEDS_A_LEVEL}
    escapes = {name: text.format(**targets) for name, text in ESCAPES.items() if name in expected}
    code = textwrap.dedent(CODE).replace("def main(escapes):", f"def main(escapes={escapes!r}):")
    answer = await call(tmp_path / "calls", code, memory_mib=256)
    assert answer.error == ""
    assert [row for row in answer.rows if not row["held"]] == []
    assert {row["name"] for row in answer.rows} == {*escapes, "control"}
    assert (
        answer.level == {"namespaces": "userns", "Landlock": "landlock", "neither": "weak"}[place]
    )


def test_the_table_lists_at_least_twenty_escapes() -> None:
    assert len(ESCAPES) >= 20
    assert set(ESCAPES) > NEEDS_A_LEVEL


def open_to_all(path: Path) -> bool:
    return all(p.stat().st_mode & 0o5 == 0o5 for p in list(path.parents))
