"""What the token of a request allows."""

from collections.abc import Callable

from aiohttp import hdrs, web

from flowmesh_control.errors import ForbiddenError, UnknownUserError
from flowmesh_core.protocol.attempt_grants import AttemptGrant
from flowmesh_core.protocol.attempt_tokens import AttemptTokens

_SCHEME = "Bearer "


class TokenGrants:
    """Verifies the attempt tokens of requests."""

    def __init__(self, tokens: AttemptTokens, clock: Callable[[], float]) -> None:
        """Keeps the arguments.

        Args:
            tokens: with the keys that control planes issue tokens with.
            clock: Unix time in seconds.
        """
        self._tokens = tokens
        self._clock = clock

    def of(self, request: web.Request) -> AttemptGrant:
        """Returns what the token of a request says.

        Raises:
            UnknownUserError: there is none, or it is not valid (any more).
        """
        header = request.headers.get(hdrs.AUTHORIZATION, "")
        grant = None
        if header.startswith(_SCHEME):
            grant = self._tokens.verify(header[len(_SCHEME) :].strip(), self._clock())
        if grant is None:
            raise UnknownUserError(
                "the attempt token is missing, too old, or not of this installation",
                where="Authorization",
                remedy="send the token of an assignment; after a change of the master key restart"
                " the blob service",
            )
        return grant


def require_readable(grant: AttemptGrant, scope: str) -> None:
    """Refuses a scope that a token may not read.

    Raises:
        ForbiddenError: the token does not name it.
    """
    if scope not in grant.readable:
        raise _forbidden("read", scope)


def require_writable(grant: AttemptGrant, scope: str) -> None:
    """Refuses a scope that a token may not write.

    Raises:
        ForbiddenError: it is not the token's write scope.
    """
    if not scope or scope != grant.write_scope:
        raise _forbidden("write", scope)


def _forbidden(verb: str, scope: str) -> ForbiddenError:
    return ForbiddenError(
        f"the attempt token does not allow to {verb} scope {scope[:200]!r}",
        where="scope",
        remedy="use the scopes that the attempt was given",
    )
