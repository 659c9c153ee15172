"""Reads and checks the answer of the process that runs a user's code.

Used by :mod:`locked_calls`. The code can write anything to that descriptor, so an answer is limited
twice: its bytes while they arrive, and the memory of its values before it is decoded, since one
byte of MessagePack can become an empty object. A large answer is collected in a file, so that one
that is refused takes no memory.
"""

import mmap
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from flowmesh_core.decoding import decode
from flowmesh_core.errors import AttemptError, Failure, FailureKind
from flowmesh_worker.engines.code.answer_size import decoded_bytes
from flowmesh_worker.engines.code.limits import SandboxResult

ANSWER_MIB_MAX = 256
_IN_MEMORY_BYTES = 8 << 20
_DECODED_FACTOR = 4
_DECODED_BASE_BYTES = 64 << 20
_decoder = msgspec.msgpack.Decoder(SandboxResult)
_REMEDY = "return less: fewer rows, or only the columns that later steps read"


class AnswerBytes:
    """Collects the bytes of an answer, up to a limit.

    Attributes:
        size_bytes: of what has arrived.
    """

    def __init__(self, memory_mib: int, folder: Path) -> None:
        """Creates an empty answer.

        Args:
            memory_mib: memory limit of the code; the answer's limit too, but at most 256 MiB.
            folder: for the file of a large answer, which has no name there.
        """
        self._limit_mib = min(memory_mib, ANSWER_MIB_MAX)
        self._file = tempfile.SpooledTemporaryFile(  # noqa: SIM115 - closed by __exit__
            _IN_MEMORY_BYTES, dir=str(folder)
        )
        self.size_bytes = 0

    def __enter__(self) -> Self:
        """Returns the answer, whose file is removed at the end of the block."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Removes the file."""
        self._file.close()

    async def take(self, data: bytes) -> None:
        """Adds the next bytes.

        Raises:
            AttemptError: kind ``user-code``: the answer is too large; ``engine``: it cannot be
                written to the disk.
        """
        if self.size_bytes + len(data) > self._limit_mib << 20:
            raise self._too_much(f"the code returned more than {self._limit_mib} MiB")
        try:
            self._file.write(data)
        except OSError as error:
            message = f"what the code returned could not be written to the disk: {error.strerror}"
            remedy = "free space in the worker's scratch directory, or return less"
            raise AttemptError(Failure(FailureKind.ENGINE, message, remedy)) from error
        self.size_bytes += len(data)

    def decoded(self) -> SandboxResult:
        """Decodes the answer.

        Raises:
            AttemptError: kind ``user-code``: the values would use too much memory.
            msgspec.DecodeError: the bytes are not an answer.
        """
        if self.size_bytes <= _IN_MEMORY_BYTES:
            self._file.seek(0)
            return self._decoded(self._file.read())
        self._file.flush()
        with mmap.mmap(self._file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return self._decoded(data)

    def _decoded(self, data: bytes | mmap.mmap) -> SandboxResult:
        limit = (self._limit_mib << 20) * _DECODED_FACTOR + _DECODED_BASE_BYTES
        if decoded_bytes(data, limit) > limit:
            raise self._too_much(
                f"what the code returned would take more than {limit >> 20} MiB of memory"
            )
        with memoryview(data) as content:
            return decode(_decoder, content)

    def _too_much(self, message: str) -> AttemptError:
        remedy = _REMEDY
        if self._limit_mib < ANSWER_MIB_MAX:
            remedy += f"; with.memoryMib limits it too, up to {ANSWER_MIB_MAX} MiB"
        return user_code_failed(message, remedy)


def user_code_failed(message: str, remedy: str = "", detail: str = "") -> AttemptError:
    """Returns a failure of kind ``user-code``."""
    return AttemptError(Failure(FailureKind.USER_CODE, message, remedy, detail))
