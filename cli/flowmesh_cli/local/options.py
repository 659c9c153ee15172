"""How a process serves a state folder: said by a command, read by the fabric that it starts."""

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

POOL = "local"
"""The pool of local workers, and the beginning of their names."""
PLANNER = "plan"
"""The beginning of the name of a worker that only answers a question."""


@dataclass(frozen=True, slots=True)
class LocalOptions:
    """How an owner serves.

    Attributes:
        serves: ``run``, ``up`` or ``read``.
        workers: local workers.
        port: of the API; 0 is any.
        say: takes what the fabric says by itself.
    """

    serves: str
    workers: int = 0
    price_usd_per_hour: Decimal | None = None
    port: int = 0
    say: Callable[[str], None] = lambda _: None
