"""Landlock: restricts an unprivileged process to a few directories (Linux 6.12 and later).

Source: the kernel's ``Documentation/userspace-api/landlock.rst``.
"""

import ctypes
import os
import struct
from collections.abc import Iterable
from pathlib import Path

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_GET_VERSION, _PATH_BENEATH = 1, 1
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_READ = _EXECUTE | _READ_FILE | _READ_DIR
_TRUNCATE, _IOCTL = 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL
_EVERY = (1 << 16) - 1
_CONNECT_AND_BIND, _SIGNALS_AND_SOCKETS = 0b11, 0b11
_LEAST_VERSION = 6
_libc = ctypes.CDLL(None, use_errno=True)


def is_supported() -> bool:
    """Whether the kernel has Landlock, in a version that can restrict signals."""
    return int(_libc.syscall(_CREATE_RULESET, None, 0, _GET_VERSION)) >= _LEAST_VERSION


def restrict_process(readable: Iterable[Path], writable: Iterable[Path]) -> None:
    """Permanently denies this process all other files, TCP, and signals to other processes.

    Needs ``no_new_privs``. Open files stay open.

    Args:
        readable: directories and files that may be read and executed.
        writable: those that may be written too.

    Raises:
        OSError: the kernel has no Landlock, or is older than 6.12, which cannot restrict signals.
    """
    if not is_supported():
        raise OSError(0, "the kernel is older than 6.12 or has no Landlock")
    attributes = struct.pack("QQQ", _EVERY, _CONNECT_AND_BIND, _SIGNALS_AND_SOCKETS)
    ruleset = _checked(_libc.syscall(_CREATE_RULESET, attributes, len(attributes), 0))
    try:
        for paths, rights in ((readable, _READ), (writable, _EVERY)):
            for path in paths:
                _allow(ruleset, path, rights)
        _checked(_libc.syscall(_RESTRICT_SELF, ruleset, 0))
    finally:
        os.close(ruleset)


def _allow(ruleset: int, path: Path, rights: int) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rights = rights if path.is_dir() else rights & _OF_FILES
        rule = struct.pack("=Qi", rights, descriptor)
        _checked(_libc.syscall(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0))
    finally:
        os.close(descriptor)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
