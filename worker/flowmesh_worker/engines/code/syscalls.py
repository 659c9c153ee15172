"""Linux system calls that the standard library lacks: namespaces, mounts, seccomp."""

import ctypes
import os
import platform
import struct

CLONE_NEWNS = 0x00020000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_REMOUNT, MS_BIND = 0x1, 0x2, 0x4, 0x20, 0x1000
MS_REC, MS_PRIVATE = 0x4000, 0x40000
_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 38, 22, 2
_PR_SET_CHILD_SUBREAPER = 36

# Calls that reach the network, other processes or rarely used parts of the kernel.
_NUMBERS = {
    "x86_64": (
        0xC000003E,
        (41, 101, 165, 166, 155, 161, 272, 308, 321, 248, 249, 250, 298, 310, 311, 323, 425),
    ),
    "aarch64": (
        0xC00000B7,
        (198, 117, 40, 39, 41, 51, 97, 268, 280, 217, 218, 219, 241, 270, 271, 282, 425),
    ),
}
_X32 = 0x40000000
_LOAD, _EQUAL, _AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050000 | 1, 0x80000000
_libc = ctypes.CDLL(None, use_errno=True)


def unshare(flags: int) -> None:
    """Moves this process to new namespaces.

    Raises:
        OSError: the kernel does not permit it.
    """
    _checked(_libc.unshare(flags))


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Mounts a file system.

    Raises:
        OSError: as :func:`unshare`.
    """
    arguments = (source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags))
    _checked(_libc.mount(*arguments, options.encode()))


def no_new_privileges() -> None:
    """Prevents this process from gaining privileges by executing a program.

    Raises:
        OSError: the kernel is too old.
    """
    _checked(_libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))


def adopt_orphans() -> None:
    """Makes this process the parent of all processes that its descendants leave behind.

    Raises:
        OSError: the kernel is too old.
    """
    _checked(_libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))


def refuse_dangerous_calls() -> None:
    """Installs a seccomp filter that refuses sockets, tracing, mounts and similar calls.

    Raises:
        OSError: the kernel has no seccomp filters, or there is no filter for this processor.
    """
    known = _NUMBERS.get(platform.machine())
    if known is None:
        raise OSError(f"no filter is known for {platform.machine()}")
    audit_arch, refused = known
    program = _program(audit_arch, refused)
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    _checked(_libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, header, 0, 0))


def _program(audit_arch: int, refused: tuple[int, ...]) -> bytes:
    """Builds the filter; in its input, offset 4 is the architecture and 0 the call's number."""
    count = len(refused)
    lines = [
        (_LOAD, 0, 0, 4),
        (_EQUAL, 1, 0, audit_arch),
        (_RETURN, 0, 0, _KILL),
        (_LOAD, 0, 0, 0),
        (_AT_LEAST, count + 1, 0, _X32),
    ]
    lines += [(_EQUAL, count - i, 0, number) for i, number in enumerate(refused)]
    lines += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _REFUSE)]
    return b"".join(struct.pack("HBBI", *line) for line in lines)


def _checked(result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
