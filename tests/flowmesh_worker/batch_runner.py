"""What played code that has no components that iterate begins with."""

from typing import Any, NoReturn


class BatchRunner:
    """Keeps nothing and runs no steps; see ``CodeRunner``."""

    iterating: tuple[str, ...] = ()

    async def step(self, component: str, *_: Any) -> NoReturn:
        raise KeyError(component)

    def forget(self, keys: tuple[str, ...]) -> None:
        del keys

    async def close(self) -> None:
        """Has nothing to end."""
