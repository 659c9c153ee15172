"""What the headers of a request say: who sends it, how long it may take, and its key."""

import secrets

from aiohttp import web
from blake3 import blake3

from flowmesh_core.openai.errors import invalid_value
from flowmesh_serving.errors import unauthorized
from flowmesh_serving.service_table import Caller, ServiceTable

_BEARER = "Bearer "
_SEED_TAG = b"flowmesh/call-seed/1\0"
_SEED_BITS = 62


def caller_of(request: web.Request, services: ServiceTable) -> Caller:
    """Returns who sends a request.

    Raises:
        OpenAiError: it has no valid token.
    """
    given = request.headers.get("Authorization", "")
    caller = None
    if given.startswith(_BEARER):
        caller = services.caller(given.removeprefix(_BEARER))
    if caller is None:
        raise unauthorized()
    return caller


def timeout_s(request: web.Request, most_s: float) -> float:
    """Returns how long a request may take: what its header says, and at most ``most_s``.

    Raises:
        OpenAiError: the header is not a number of seconds.
    """
    given = request.headers.get("X-Request-Timeout")
    if given is None:
        return most_s
    try:
        wanted_s = float(given)
    except ValueError:
        wanted_s = 0.0
    if not 0 < wanted_s < float("inf"):
        raise invalid_value("X-Request-Timeout", "expected a number of seconds above 0.")
    return min(wanted_s, most_s)


def seed_of(key: str, caller: Caller) -> int:
    """Returns the seed of a request that has none: of its idempotency key, or a random one."""
    if not key:
        return secrets.randbits(_SEED_BITS)
    hasher = blake3(_SEED_TAG)
    for part in (caller.service.service, caller.namespace, key):
        hasher.update(part.encode() + b"\0")
    return int.from_bytes(hasher.digest(8), "big") >> (64 - _SEED_BITS)
