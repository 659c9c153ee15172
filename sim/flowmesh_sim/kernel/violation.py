"""How an invariant that does not hold is told."""

from typing import NoReturn

from flowmesh_core.errors import InvariantError


def wrong(where: str, what: str) -> NoReturn:
    """Ends the simulation.

    Raises:
        InvariantError: always.
    """
    raise InvariantError(what, where=where)
