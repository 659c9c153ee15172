"""Sends the refusals of a client that asks too often later, so that it asks less.

Paced are answers to users beyond their quota, by user, and refusals of requests without a valid
token, by peer. Counted and logged they are at once.
"""

import asyncio
from http import HTTPStatus

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from flowmesh_control.api.connections import while_connected
from flowmesh_control.api.request_recorder import facts_of
from flowmesh_control.auth.unverified_connections import peer_of
from flowmesh_control.loop.clock import Clock
from flowmesh_control.quotas.refusal_pace import RefusalPace

WAITING_MAX = 1024
"""How many refusals may wait; further ones are sent at once and close their connection."""


def paced_refusals(clock: Clock) -> Middleware:
    """Returns a middleware that delays refusals; ``clock`` gives seconds that never go back."""
    pace, waiting = RefusalPace(clock), 0

    @web.middleware
    async def delay(request: web.Request, handler: Handler) -> web.StreamResponse:
        nonlocal waiting
        response = await handler(request)
        client = _client(request, response.status)
        delay_s = pace.delay_s(client) if client else 0.0
        if delay_s and waiting >= WAITING_MAX:
            response.force_close()
        elif delay_s:
            waiting += 1
            try:
                await while_connected(request, asyncio.sleep(delay_s))
            finally:
                waiting -= 1
        return response

    return delay


def _client(request: web.Request, status: int) -> str:
    """Returns whose refusal an answer is; empty where it is none that is paced."""
    facts = facts_of(request)
    if facts.user is not None:
        refused = status == HTTPStatus.TOO_MANY_REQUESTS
        # Not by namespace: a request names it, and may name another each time.
        return f"user {facts.user.name}" if refused else ""
    if status < HTTPStatus.BAD_REQUEST or request.transport is None:
        return ""
    return f"peer {peer_of(request.transport.get_extra_info('peername'))}"
