"""Reports a violated invariant."""

from typing import NoReturn

from flowmesh_core.errors import InvariantError


def violated(where: str, what: str) -> NoReturn:
    """Ends the simulation with an error.

    Raises:
        InvariantError: always.
    """
    raise InvariantError(what, where=where)
