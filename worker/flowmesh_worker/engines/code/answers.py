"""Reads and checks the answer of the process that runs a user's code.

Used by :mod:`locked_calls`. The code can write anything to that descriptor, so an answer is limited
twice: its bytes while they arrive, and the memory of its values before it is decoded, since one
byte of MessagePack can become an empty object.
"""

import msgspec

from flowmesh_core.decoding import decode
from flowmesh_core.errors import AttemptError, Failure, FailureKind
from flowmesh_worker.engines.code.answer_size import decoded_bytes
from flowmesh_worker.engines.code.limits import SandboxResult

ANSWER_MIB_MAX = 256
_DECODED_FACTOR = 4
_DECODED_BASE_BYTES = 64 << 20
_decoder = msgspec.msgpack.Decoder(SandboxResult)
_REMEDY = "return less: fewer rows, or only the columns that later steps read"


class AnswerBytes:
    """Collects the bytes of an answer, up to a limit."""

    def __init__(self, memory_mib: int) -> None:
        """Creates an empty answer.

        Args:
            memory_mib: memory limit of the code; the answer's limit too, but at most 256 MiB.
        """
        self._limit_mib = min(memory_mib, ANSWER_MIB_MAX)
        self.data = bytearray()

    async def take(self, data: bytes) -> None:
        """Adds the next bytes.

        Raises:
            AttemptError: kind ``user-code``: the answer is too large.
        """
        if len(self.data) + len(data) > self._limit_mib << 20:
            raise self._too_much(f"the code returned more than {self._limit_mib} MiB")
        self.data += data

    def decoded(self) -> SandboxResult:
        """Decodes the answer and releases its bytes.

        Raises:
            AttemptError: kind ``user-code``: the values would use too much memory.
            msgspec.DecodeError: the bytes are not an answer.
        """
        limit = (self._limit_mib << 20) * _DECODED_FACTOR + _DECODED_BASE_BYTES
        if decoded_bytes(self.data, limit) > limit:
            raise self._too_much(
                f"what the code returned would take more than {limit >> 20} MiB of memory"
            )
        answer = decode(_decoder, self.data)
        self.data = bytearray()
        return answer

    def _too_much(self, message: str) -> AttemptError:
        self.data = bytearray()
        remedy = _REMEDY
        if self._limit_mib < ANSWER_MIB_MAX:
            remedy += f"; with.memoryMib limits it too, up to {ANSWER_MIB_MAX} MiB"
        return user_code_failed(message, remedy)


def user_code_failed(message: str, remedy: str = "", detail: str = "") -> AttemptError:
    """Returns a failure of kind ``user-code``."""
    return AttemptError(Failure(FailureKind.USER_CODE, message, remedy, detail))
