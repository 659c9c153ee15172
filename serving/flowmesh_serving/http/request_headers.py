"""What a request says in its headers: token, timeout, priority, and the seed that a key gives it.

Headers are bytes of a client, and may be no text: what cannot be decoded stays as it was sent.
"""

from collections.abc import Mapping

from blake3 import blake3

from flowmesh_core.openai.errors import invalid_value
from flowmesh_core.serving.queue.request_priority import RequestPriority
from flowmesh_serving.calls.random_names import new_seed
from flowmesh_serving.service_table import Caller, ServiceTable

PRIORITY_HEADER = "X-Flowmesh-Priority"
_PRIORITIES = {one.name.lower(): one for one in RequestPriority}
_BEARER = "Bearer "
_SEED_TAG = b"flowmesh/call-seed/1\0"
_SEED_BITS = 62


def bearer_token(headers: Mapping[str, str]) -> str:
    """Returns the token that a request shows; empty for none."""
    given = headers.get("Authorization", "")
    return given.removeprefix(_BEARER) if given.startswith(_BEARER) else ""


def caller_of(headers: Mapping[str, str], services: ServiceTable) -> Caller | None:
    """Returns who sends a request, by the token of a service; None for any other token."""
    token = bearer_token(headers)
    return services.caller(token) if token else None


def timeout_s(headers: Mapping[str, str], most_s: float) -> float:
    """Returns how long a request may take.

    Raises:
        OpenAiError: its header is no such number.
    """
    given = headers.get("X-Request-Timeout")
    if given is None:
        return most_s
    try:
        found_s = float(given)
    except ValueError:
        found_s = 0.0
    if not 0 < found_s < float("inf"):
        raise invalid_value("X-Request-Timeout", "expected a number of seconds above 0.")
    return min(found_s, most_s)


def priority(headers: Mapping[str, str]) -> RequestPriority:
    """Returns the priority of a request among those of its namespace at its service.

    Raises:
        OpenAiError: its header is none of the names.
    """
    given = headers.get(PRIORITY_HEADER)
    if given is None:
        return RequestPriority.NORMAL
    found = _PRIORITIES.get(given)
    if found is None:
        raise invalid_value(PRIORITY_HEADER, f"expected {', '.join(_PRIORITIES)}.")
    return found


def seed(headers: Mapping[str, str], caller: Caller) -> int:
    """Returns the seed of a request that has none: of its idempotency key, or a random one."""
    key = headers.get("Idempotency-Key", "")
    if not key:
        return new_seed()
    hasher = blake3(_SEED_TAG)
    for part in (caller.service.service, caller.namespace, key):
        hasher.update(part.encode(errors="surrogateescape") + b"\0")
    return int.from_bytes(hasher.digest(8), "big") >> (64 - _SEED_BITS)
