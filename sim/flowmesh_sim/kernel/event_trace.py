"""Records everything that happened as canonical lines, whose hash identifies a simulation.

A line is an event that the machine applied, or a change of the simulated world (a worker started, a
fault happened). Equal seeds give equal lines.
"""

from pathlib import Path
from typing import IO, Any

import msgspec
from blake3 import blake3

from flowmesh_core.errors import FlowMeshError

_encoder = msgspec.json.Encoder(order="deterministic")


def unwritable(path: Path, error: OSError) -> FlowMeshError:
    """Returns the error for an output file that cannot be written."""
    remedy = "check the path, your rights to it and the space there"
    return FlowMeshError(f"cannot be written: {error.strerror}", where=str(path), remedy=remedy)


class EventTrace:
    """The hash of all lines so far, and optionally a file of the lines."""

    def __init__(self, path: Path | None = None) -> None:
        """Starts a trace; a file at the path is replaced.

        Raises:
            FlowMeshError: the file cannot be written.
        """
        self._hash = blake3()
        self._file: IO[bytes] | None = None
        if path is not None:
            try:
                self._file = path.open("wb")
            except OSError as e:
                raise unwritable(path, e) from e
        self.lines = 0

    def add(self, time_s: float, kind: str, what: Any) -> None:
        """Adds a line.

        Args:
            time_s: virtual time.
            kind: the event's name.
            what: its content: structs, dataclasses and plain values.
        """
        data = _encoder.encode((time_s, kind, what)) + b"\n"
        self._hash.update(data)
        self.lines += 1
        if self._file is not None:
            self._file.write(data)

    @property
    def digest(self) -> str:
        """The hash of the lines so far, as 64 hexadecimal digits."""
        return self._hash.hexdigest()

    def close(self) -> None:
        """Closes the file."""
        if self._file is not None:
            self._file.close()
            self._file = None
