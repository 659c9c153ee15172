"""What an attacker places where a file is expected."""

import os
import socket
from collections.abc import Callable
from pathlib import Path


def fifo(path: Path) -> None:
    """Opening it waits until a process opens it for writing."""
    os.mkfifo(path)


def link(path: Path) -> None:
    """A file that the reader may read, and the attacker may not."""
    secret = path.parent / "secret"
    secret.write_bytes(b"a secret")
    path.symlink_to(secret)


def endless(path: Path) -> None:
    """A device whose content never ends."""
    path.symlink_to("/dev/zero")


def local_socket(path: Path) -> None:
    """A socket; its path is short enough only relative to its folder."""
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)


PLACED: list[Callable[[Path], None]] = [fifo, link, endless, local_socket]
