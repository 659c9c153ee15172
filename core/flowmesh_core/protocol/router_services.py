"""What a router knows: its services, callers' tokens, and the authorities of link certificates.

On a laptop ``fmesh serve`` writes it to a file; on a cluster routers read it from the control plane
(``GET /v1/router``). It is a level: what it lists holds until the next one, and a service or token
that leaves it is refused. Tokens are in it as hashes only. Fields are added at the end, with a
default.

A control plane that leads no more may answer until it notices. So each list has the epoch of its
leader, and a router refuses a list that is older than one that it has.
"""

import hashlib
from typing import Any

import msgspec

from flowmesh_core.stages.service_graph import ServiceGraph

DEFAULT_TIMEOUT_S = 600.0
DEFAULT_IN_FLIGHT_MAX = 64


class ServiceToken(msgspec.Struct, frozen=True, omit_defaults=True):
    """A token that may call one service.

    Attributes:
        hash: SHA-256 of the token, in hexadecimal.
        namespace: of the caller: who pays, and whose prefix cache is used.
        expires_s: Unix time; 0 for never.
    """

    hash: str
    namespace: str
    expires_s: float = 0.0


class ChatFields(msgspec.Struct, frozen=True, omit_defaults=True):
    """How chats ask a service with stages.

    Attributes:
        question: the field of its request that gets the last message of the user.
        answer: the field of its reply that answers.
    """

    question: str
    answer: str


class ServiceEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A service.

    Attributes:
        service: ``namespace/name``.
        model: its name in OpenAI's API.
        tokens: those that may call it.
        timeout_s: the longest that a request may take.
        in_flight_max: requests that may be in flight at one router, of all namespaces together.
        created_s: Unix time.
        weights: of namespaces in shares of ``in_flight_max``; 1 where none is given.
        placed: by replica id, the worker on which the control plane placed it: a hub is believed
            about no others. None where the placement is not known; then hubs are believed.
        tool_parser: vLLM's parser of the model's tool calls; empty for none.
        graph: its stages; None for a service of one engine.
        slo_s: when a reply is late; 0 for no target.
        on_late: what becomes of a request that cannot be in time.
        request_bytes_max: the largest request of a service with stages.
        max_in_flight: requests of a service with stages that have not ended, of all callers.
        request_schema: the JSON schema of requests to a service with stages; empty for none.
        miss_rate: the share of requests that may take longer than ``slo_s``.
        keys: of components that have one, the field of a request that their replica is chosen by,
            such as ``request.user``.
        chat: of a service with stages that is offered as a chat model; None for others.
        ttft_s: when the first event of a streamed answer is late; 0 for no target.
        tpot_s: when a further token of a streamed answer is late, in the mean; 0 for no target.
        slo_scale: ``slo_s`` is so many times a request alone, and 0 before that is measured; 0
            where it is a time of its own.
        adapters: names of LoRA adapters that requests may choose by ``MODEL:NAME``.
    """

    service: str
    model: str
    tokens: tuple[ServiceToken, ...] = ()
    timeout_s: float = DEFAULT_TIMEOUT_S
    in_flight_max: int = DEFAULT_IN_FLIGHT_MAX
    created_s: float = 0.0
    weights: dict[str, float] = {}
    placed: dict[str, str] | None = None
    tool_parser: str = ""
    graph: ServiceGraph | None = None
    slo_s: float = 0.0
    on_late: str = "demote"
    request_bytes_max: int = 1 << 20
    max_in_flight: int = DEFAULT_IN_FLIGHT_MAX
    request_schema: dict[str, Any] = {}
    miss_rate: float = 0.01
    keys: dict[str, str] = {}
    chat: ChatFields | None = None
    ttft_s: float = 0.0
    tpot_s: float = 0.0
    slo_scale: float = 0.0
    adapters: tuple[str, ...] = ()


class RouterServices(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of the file, and of the control plane's response.

    Attributes:
        services: all services.
        link_authorities: certificates (PEM) that link certificates are verified with, by key id;
            none where hubs connect over a Unix socket.
        denied_workers: that may not join: routers take nothing from their hubs, whatever their
            certificates say.
        epoch: of the leader; 0 in a file, and from releases that did not state it.
        version: rises with each change of the list within the epoch.
    """

    services: tuple[ServiceEntry, ...] = ()
    link_authorities: dict[str, str] = {}
    denied_workers: tuple[str, ...] = ()
    epoch: int = 0
    version: int = 0


def token_hash(token: str) -> str:
    """Returns what is stored of a token."""
    return hashlib.sha256(token.encode(errors="surrogateescape")).hexdigest()
