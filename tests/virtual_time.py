"""An event loop in virtual time, for code that waits for its timers."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any


class VirtualTime(asyncio.SelectorEventLoop):
    """An event loop whose clock jumps to the next timer instead of waiting for it."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        select = self._selector.select  # type: ignore[attr-defined]

        def jump(timeout: float | None) -> Any:
            self.now_s += timeout or 0.0
            return select(0)

        self._selector.select = jump  # type: ignore[attr-defined]

    def time(self) -> float:
        return self.now_s


def in_virtual_time(
    test: Callable[..., Coroutine[Any, Any, None]],
) -> Callable[..., None]:
    """Runs a test in such a loop."""

    @functools.wraps(test)
    def run(*args: Any, **given: Any) -> None:
        with asyncio.Runner(loop_factory=VirtualTime) as runner:
            runner.run(test(*args, **given))

    return run
