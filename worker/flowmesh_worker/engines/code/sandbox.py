"""Puts the process that runs users' code into a sandbox, and lists what is not supported.

If it may create namespaces (as root, or with user namespaces), the code sees its own file system
with the interpreter's libraries and an empty ``/tmp``, no network and no other process. If not (in
pods), Landlock restricts it to the same files and a directory of its own. On a machine with neither
the other protections remain: seccomp, limits, no credentials in the environment. These are the
levels ``userns``, ``landlock`` and ``weak``, which workers report (``sandbox_level``).
"""

import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path

from flowmesh_core.protocol.sandbox_levels import SandboxLevel
from flowmesh_worker.engines.code import landlock, syscalls
from flowmesh_worker.engines.code.limits import SandboxRequest
from flowmesh_worker.engines.code.process_tree import end_children
from flowmesh_worker.ipc.parent_death import die_with_parent

_LIBRARIES = ("/usr", "/lib", "/lib64", "/etc/ld.so.cache")
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom")
_PROCESSES = 64
_OPEN_FILES = 128
_OVERFLOW_UID = 65534
_MIB = 1 << 20
_WHOLE = "a file system, network and processes of its own"


def enter(task: SandboxRequest) -> tuple[SandboxLevel, list[str]]:
    """Enters the sandbox; returns in a child process with a PID namespace if that is possible.

    Returns:
        Its level, and the protections that are missing, as text.
    """
    level = SandboxLevel.USERNS
    lacks: list[str] = []
    root = os.geteuid() == 0 and not task.own_user
    private = _try(lacks, _WHOLE, enter_namespaces, Path(task.jail), task.file_mib, root=root)
    if private:
        _first_process()
    else:
        level = SandboxLevel.WEAK
        _supervise()
        os.environ["HOME"] = os.environ["TMPDIR"] = task.jail
        os.chdir(task.jail)
    own_uid = root and _try(lacks, "a user of its own", _become, task.wanted_uid)
    if not (root or task.own_user):
        lacks.append("a user of its own (the worker does not run as root)")
    _limit(task, own_uid=own_uid)
    die_with_parent(None)
    _try(lacks, "protection from gaining rights", syscalls.no_new_privileges)
    if not private and _try(lacks, "Landlock", _shut_in, task):
        level = SandboxLevel.LANDLOCK
        lacks = [lack for lack in lacks if not lack.startswith(_WHOLE)]
    _try(lacks, "a filter on system calls", syscalls.refuse_dangerous_calls)
    return level, lacks


def _try(
    lacks: list[str], what: str, do: Callable[..., None], *arguments: object, **named: object
) -> bool:
    try:
        do(*arguments, **named)
    except OSError as error:
        lacks.append(f"{what} ({error.strerror or error})")
        return False
    return True


def enter_namespaces(jail: Path, file_mib: int, *, root: bool) -> None:
    """Moves this process into namespaces with a file system of its own; its children are in them.

    Args:
        jail: an empty directory.
        file_mib: size of the temporary directory.
        root: whether this process may create namespaces without one for users.

    Raises:
        OSError: the machine does not permit it.
    """
    spaces = (
        syscalls.CLONE_NEWNS | syscalls.CLONE_NEWNET | syscalls.CLONE_NEWIPC | syscalls.CLONE_NEWPID
    )
    uid, gid = os.getuid(), os.getgid()
    syscalls.unshare(spaces if root else spaces | syscalls.CLONE_NEWUSER)
    if not root:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
    _own_files(jail, file_mib)


def _shut_in(task: SandboxRequest) -> None:
    """Restricts the process without namespaces: the same files, no signals to others."""
    devices = [Path(device) for device in _DEVICES]
    landlock.restrict_process(_needed(), [Path(task.jail), *devices])


def _own_files(jail: Path, size_mib: int) -> None:
    private = syscalls.MS_REC | syscalls.MS_PRIVATE
    safe = syscalls.MS_NOSUID | syscalls.MS_NODEV
    syscalls.mount("none", "/", "", private)
    syscalls.mount("tmpfs", str(jail), "tmpfs", safe, "size=1m,mode=755")
    # Mounted first, so that an interpreter below /tmp is visible in it and not hidden by it.
    temporary = jail / "tmp"
    temporary.mkdir()
    syscalls.mount("tmpfs", str(temporary), "tmpfs", safe, f"size={size_mib}m,mode=1777")
    for source in _needed():
        _show(source, jail)
    for device in _DEVICES:
        target = jail / device.lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.touch()
        syscalls.mount(device, str(target), "", syscalls.MS_BIND)
    os.chroot(jail)
    os.chdir("/tmp")


def _needed() -> list[Path]:
    """Returns the interpreter and its libraries, without paths below another of them."""
    wanted = [*_LIBRARIES, sys.base_prefix, sys.prefix]
    found = [Path(p) for p in dict.fromkeys(wanted) if Path(p).exists()]
    return [p for p in found if not any(o != p and p.is_relative_to(o) for o in found)]


def _show(source: Path, jail: Path) -> None:
    target = jail / str(source).lstrip("/")
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.is_symlink():
        target.symlink_to(os.readlink(source))
        return
    if source.is_dir():
        target.mkdir(exist_ok=True)
    else:
        target.touch()
    syscalls.mount(str(source), str(target), "", syscalls.MS_BIND)
    flags = syscalls.MS_BIND | syscalls.MS_REMOUNT | syscalls.MS_RDONLY | syscalls.MS_NOSUID
    syscalls.mount("none", str(target), "", flags)


def _supervise() -> None:
    """Continues in a child; this process ends all that the child leaves behind."""
    syscalls.adopt_orphans()
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        end_children()
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _first_process() -> None:
    """Continues as the first process of the new namespace; all others die with it."""
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    die_with_parent(None)


def _become(uid: int) -> None:
    os.setgroups([])
    try:
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    except OSError:  # many containers map only 65,536 users
        os.setresgid(_OVERFLOW_UID, _OVERFLOW_UID, _OVERFLOW_UID)
        os.setresuid(_OVERFLOW_UID, _OVERFLOW_UID, _OVERFLOW_UID)


def _limit(task: SandboxRequest, *, own_uid: bool) -> None:
    limits = {
        resource.RLIMIT_CPU: task.cpu_s,
        resource.RLIMIT_AS: _address_space() + task.memory_mib * _MIB,
        resource.RLIMIT_FSIZE: task.file_mib * _MIB,
        resource.RLIMIT_NOFILE: _OPEN_FILES,
        resource.RLIMIT_CORE: 0,
    }
    if own_uid:  # the kernel counts all processes of the user
        limits[resource.RLIMIT_NPROC] = _PROCESSES
    for limit, wanted in limits.items():
        hard = resource.getrlimit(limit)[1]
        value = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(limit, (value, value))


def _address_space() -> int:
    """Returns the interpreter's own mappings; read before the jail hides ``/proc``."""
    return _MAPPED_AT_START


def _mapped() -> int:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except OSError:
        return 256 * _MIB
    return pages * resource.getpagesize()


_MAPPED_AT_START = _mapped()
