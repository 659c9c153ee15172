"""Decides who may join as a worker: by the request's token, then by the Hello.

The token is checked before the connection becomes a WebSocket, so nobody without one makes the
control plane read a message. What the token says of the worker then binds what its Hello says.
"""

from collections.abc import Callable, Set
from dataclasses import dataclass

import msgspec
from aiohttp import web

from flowmesh_api.v1.errors import ErrorDetails, ErrorDocument
from flowmesh_control.auth.worker_tokens import ANY_POOL, WorkerIdentity, WorkerTokenVerifier
from flowmesh_core.errors import FlowMeshError
from flowmesh_core.protocol.messages import PROTOCOL_VERSION, REFUSAL_HEADER, Hello

REASON_CHARS = 500
_UNAUTHORIZED, _FORBIDDEN, _UNAVAILABLE = 401, 403, 503
_NO_TOKEN = "the request has no worker token"
_NO_TOKEN_REMEDY = (
    "start the worker with --token-file, or with FLOWMESH_WORKER_TOKEN, as a worker of this release"
)
_INVALID = "the token is not valid for any pool"
_INVALID_REMEDY = (
    "give the worker the token of its pool; on Kubernetes pods of a FlowMeshWorkerPool have it"
)
_STOPPED_CONTROL = (
    "the control plane stopped twice while it worked on this worker's messages",
    "delete the worker's pod, and report what it sends",
)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a Hello is refused, and whether the worker should give up."""

    reason: str
    final: bool


@dataclass(frozen=True, slots=True)
class JoinChecks:
    """Checks requests and Hellos of workers, in one epoch.

    Attributes:
        epoch: of the control plane.
        tokens: verifies workers' tokens.
        later_epoch_seen: called with the epoch that a worker has seen, if later than this one.
        refused: names of workers whose messages have stopped the control plane too often.
    """

    epoch: int
    tokens: WorkerTokenVerifier
    later_epoch_seen: Callable[[int], None]
    refused: Set[str]

    async def identity(self, request: web.Request) -> WorkerIdentity | web.Response:
        """Returns who asks to join, or the answer where it may not."""
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        token = given.strip()
        if scheme.lower() != "bearer" or not token:
            return _answer(_UNAUTHORIZED, _NO_TOKEN, _NO_TOKEN_REMEDY)
        try:
            identity = await self.tokens.identity_of(token)
        except FlowMeshError as e:
            return _answer(_UNAVAILABLE, e.message, e.remedy)
        if identity is None:
            return _answer(_UNAUTHORIZED, _INVALID, _INVALID_REMEDY)
        if identity.pod in self.refused:
            return _answer(_FORBIDDEN, *_STOPPED_CONTROL)
        return identity

    def refusal(self, hello: Hello, identity: WorkerIdentity) -> Refusal | None:
        """Returns why a Hello is refused; None where the worker may join."""
        if hello.version != PROTOCOL_VERSION:
            return Refusal(
                f"protocol version {hello.version}; this control plane speaks {PROTOCOL_VERSION}; "
                "use a worker of the same release",
                final=True,
            )
        refusal = _of_pool_and_name(hello, identity)
        if refusal is not None:
            return refusal
        if hello.epoch > self.epoch:
            self.later_epoch_seen(hello.epoch)
            return Refusal(
                f"this control plane leads epoch {self.epoch}, the worker has seen {hello.epoch}",
                final=False,
            )
        if hello.shape.name in self.refused:
            return Refusal("; ".join(_STOPPED_CONTROL), final=True)
        return None


def _of_pool_and_name(hello: Hello, identity: WorkerIdentity) -> Refusal | None:
    """Refuses a pool or a name that the token is not for."""
    name, pool = hello.shape.name[:REASON_CHARS], hello.shape.pool[:REASON_CHARS]
    if identity.pool not in (ANY_POOL, hello.shape.pool):
        return Refusal(
            f"the token is for pool {identity.pool!r}, not for pool {pool!r}; "
            f"start the worker with --pool {identity.pool}",
            final=True,
        )
    if identity.pod:
        if identity.pod == hello.shape.name:
            return None
        return Refusal(
            f"the token was made for the pod {identity.pod!r}, and the worker's name is {name!r}; "
            f"start the worker with --name {identity.pod}",
            final=True,
        )
    prefix = f"{hello.shape.pool}-"
    if hello.shape.name.startswith(prefix) and hello.shape.name != prefix:
        return None
    return Refusal(
        f"the name {name!r} does not begin with {pool + '-'!r}, as names in pool {pool!r} must; "
        f"start the worker with --name {pool}-{name or 1}, or without --name",
        final=True,
    )


def _answer(status: int, message: str, remedy: str) -> web.Response:
    """Returns a refusal; its header has the reason too, since clients of WebSockets see no body."""
    body = msgspec.json.encode(ErrorDocument(ErrorDetails(message, "", remedy, ())))
    response = web.Response(status=status, body=body, content_type="application/json")
    reason = f"{message}; {remedy}" if remedy else message
    response.headers[REFUSAL_HEADER] = _printable(reason)
    if status == _UNAUTHORIZED:
        response.headers["WWW-Authenticate"] = "Bearer"
    if status == _UNAVAILABLE:
        response.headers["Retry-After"] = "1"
    return response


def _printable(text: str) -> str:
    """Returns a text as a header may have it."""
    ascii_text = text[:REASON_CHARS].encode("ascii", "replace").decode()
    return "".join(c if c.isprintable() else " " for c in ascii_text)
