"""Runs batches of trusted components in the engine host itself, on one thread."""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from flowmesh_worker.engines.code.component_code import ComponentCode
from flowmesh_worker.engines.code.component_frames import BatchCall, CallResult, LoadedCode
from flowmesh_worker.ipc.passed_values import StageBytes


class TrustedCode:
    """The code of trusted components; see ``CodeRunner``."""

    def __init__(self, components: Sequence[LoadedCode]) -> None:
        """Runs the modules.

        Raises:
            Exception: whatever the code raises.
        """
        self.code = ComponentCode(components)
        self._thread = ThreadPoolExecutor(1, "component")

    async def run(
        self,
        component: str,
        calls: Sequence[BatchCall],
        within_s: float,
        passed: Sequence[Mapping[str, StageBytes]] = (),
    ) -> list[CallResult]:
        """Returns the results of a batch; trusted code is not ended."""
        del within_s
        loop = asyncio.get_running_loop()
        results = await loop.run_in_executor(self._thread, self.code.run, component, calls, passed)
        with contextlib.suppress(RuntimeError):  # it was closed meanwhile
            self._thread.submit(self.code.prepare)
        return results

    def forget(self, keys: tuple[str, ...]) -> None:
        """Drops results that are kept."""
        self._thread.submit(self.code.forget, keys)

    async def close(self) -> None:
        """Ends the thread after its last batch."""
        self._thread.shutdown(wait=False, cancel_futures=True)
