"""The engine hosts that the worker agent of this process has started."""

import contextlib

import psutil


def engine_hosts(*, recursive: bool = True) -> list[psutil.Process]:
    """Returns those that live; a child that has ended meanwhile has no command line any more."""
    found = []
    for child in psutil.Process().children(recursive=recursive):
        with contextlib.suppress(psutil.NoSuchProcess):  # and ZombieProcess, which is one
            if "flowmesh_worker.host" in child.cmdline():
                found.append(child)
    return found
