"""An engine that sends the agent whatever frames its test wants, past the host's own server."""

import asyncio
import os
import struct
import sys
from collections.abc import Mapping
from typing import Any

import msgspec

from flowmesh_worker.engine_api import HostSettings, Progress, Result, TreeInput, Work
from flowmesh_worker.engines.testing.noop import Noop

NO_TEXT = "\udcff"
"""What Python makes of a file's name that is not UTF-8."""


class OddFrames(Noop):
    """Sends frames while it runs; ``stay`` in ``params`` keeps an attempt running after that."""

    def __init__(self) -> None:
        self._broken = False

    async def load(self, components: Mapping[str, TreeInput], settings: HostSettings) -> None:
        """Fails where the signature says so, and never closes after that."""
        self._broken = "broken" in settings.signature_params
        if self._broken:
            raise ValueError("no such model")

    async def run(self, work: Work, progress: Progress) -> Result:
        """Sends ``frames``, each a list that begins with the frame's tag, and what it ``says``."""
        _send(work.params.get("frames", []))
        if work.params.get("says") == "progress":
            progress(0.0, 1.0, NO_TEXT)
            await asyncio.Event().wait()
        if work.params.get("says") == "error":
            raise ValueError(f"no such file: {NO_TEXT}")
        if work.params.get("stay"):
            await asyncio.Event().wait()
        return await super().run(work, progress)

    async def close(self) -> None:
        """Hangs after a load that failed."""
        if self._broken:
            await asyncio.Event().wait()


def _send(frames: list[list[Any]]) -> None:
    if frames:
        body = msgspec.msgpack.encode(frames)
        os.write(int(sys.argv[1]), struct.pack(">I", len(body)) + body)
