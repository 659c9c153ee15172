"""Starts resident sandboxes as children of the component host, where no container runs them."""

import itertools
import socket
from pathlib import Path

from flowmesh_worker.engines.code.limits import SandboxRequest
from flowmesh_worker.engines.code.resident_process import ResidentProcess, start_process


class LocalResident:
    """A resident sandbox below this process.

    Attributes:
        channel: the host's end of its connection.
    """

    def __init__(self, process: ResidentProcess, channel: socket.socket) -> None:
        self._process = process
        self.channel = channel

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    @property
    def lacks(self) -> str:
        """See ``Resident``."""
        return self._process.lacks

    async def end(self) -> str:
        """See ``Resident``."""
        return (await self._process.end()).exceeded


class LocalResidents:
    """Starts resident sandboxes of one component host."""

    def __init__(self, scratch: Path) -> None:
        """Starts nothing; the code's own directories are created below ``scratch``."""
        self._scratch = scratch
        self._numbers = itertools.count(1)

    async def start(self, task: SandboxRequest) -> LocalResident:
        """Starts one within the limits of ``task``."""
        self._scratch.chmod(0o711)  # the code's user passes through, and cannot list it
        ours, theirs = socket.socketpair()
        try:
            jail = self._scratch / f"resident-{next(self._numbers)}"
            return LocalResident(await start_process(task, jail, theirs), ours)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
