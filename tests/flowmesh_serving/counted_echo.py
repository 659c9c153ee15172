"""``test.echo`` that notes each word when it has computed it, so that what is lost can be counted.

What a process has written to a file outlives its ``kill -9``.
"""

import os
import struct
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path

from flowmesh_worker.engine_api import HostSettings, ServingCall, TreeInput
from flowmesh_worker.engines.testing.echo import Echo

LOADS = "tests.flowmesh_serving.counted_echo:CountedEcho"
_NOTE = struct.Struct("<qd")
_FILE = "words"


class CountedEcho(Echo):
    """Notes the number of a question, which its first word has after a letter, for each word."""

    def __init__(self) -> None:
        super().__init__()
        self._notes = -1

    async def load(self, components: Mapping[str, TreeInput], settings: HostSettings) -> None:
        """Opens its file in the host's folder."""
        await super().load(components, settings)
        flags = os.O_CREAT | os.O_WRONLY | os.O_APPEND
        self._notes = os.open(settings.scratch / _FILE, flags)

    async def _words(self, call: ServingCall) -> AsyncIterator[str]:
        number = -1
        async for word in super()._words(call):
            number = int(word[1:]) if number < 0 else number
            os.write(self._notes, _NOTE.pack(number, time.monotonic()))
            yield word


def computed_words(folder: Path) -> Iterator[tuple[int, float]]:
    """Yields what the engine of a host's folder has computed.

    Yields:
        The number of the question and the time of ``time.monotonic``, for each word.
    """
    path = folder / _FILE
    yield from _NOTE.iter_unpack(path.read_bytes() if path.exists() else b"")
