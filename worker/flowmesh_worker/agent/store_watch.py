"""Looks at the store from time to time, since a worker that cannot reach it can do no work.

The agent reports what it finds: such a worker stays connected and continues its attempts, but gets
nothing new, and its pod is not Ready.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from flowmesh_core.errors import StoreError, StoreUnavailableError

LOOK_EVERY_S = 15.0
RETRY_S = 3.0
"""Pause after a look that failed."""
LOOK_WITHIN_S = 20.0
UNANSWERED_MAX = 3
"""Looks in a row without an answer before they count, since a server may be restarted. A refusal
counts at once, and so does the first look of all."""
_log = logging.getLogger(__name__)


class StoreWatch:
    """Looks at the store, and keeps the result.

    Attributes:
        problem: why the store cannot be reached; empty where it can, and before the first look.
    """

    def __init__(self, look: Callable[[], Awaitable[None]]) -> None:
        """Looks first in :meth:`look`.

        Args:
            look: raises a ``StoreError`` where the store cannot be reached.
        """
        self.problem = ""
        self._look = look
        self._unanswered = 0
        self._soon = asyncio.Event()

    async def look(self) -> None:
        """Looks before the worker joins."""
        self._unanswered = UNANSWERED_MAX
        await self._find()

    async def run(self, looked: Callable[[], None]) -> None:
        """Looks until cancelled; calls ``looked`` after each look."""
        while True:
            pause_s = RETRY_S if self._unanswered or self.problem else LOOK_EVERY_S
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._soon.wait(), pause_s)
            self._soon.clear()
            await self._find()
            looked()

    def look_soon(self) -> None:
        """Has :meth:`run` look at once: the store has just failed an attempt."""
        self._soon.set()

    async def _find(self) -> None:
        before = self.problem
        try:
            async with asyncio.timeout(LOOK_WITHIN_S):
                await self._look()
        except StoreUnavailableError as error:
            self._count(str(error))
        except TimeoutError:
            self._count(f"the store did not answer within {LOOK_WITHIN_S:.0f} s")
        except StoreError as error:
            self.problem = str(error)
        else:
            self._unanswered, self.problem = 0, ""
        if self.problem != before:
            _log.warning("%s", self.problem or "the store can be reached again")

    def _count(self, problem: str) -> None:
        self._unanswered += 1
        if self._unanswered >= UNANSWERED_MAX:
            self.problem = problem
