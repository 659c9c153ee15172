"""A hub with several replicas that a test plays: it notes which of them gets what."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import msgspec
from tests.flowmesh_serving.hand_hub import HandHub, hand_hub
from tests.flowmesh_serving.stack import TOKEN, Stack, until

from flowmesh_core.protocol.serving import (
    FULL,
    CallEnded,
    CallRefused,
    Ping,
    Pong,
    ReplicaLoad,
    RunStages,
    ServiceCall,
    StageValue,
)

_ANSWER = b'{"id": "x", "object": "x", "choices": []}'


@dataclass
class PlayedReplicas:
    """Replicas of one service.

    Attributes:
        chosen: the replica of each call, or of each request's first stage.
        holds: whether they answer nothing.
        full: those that refuse calls.
    """

    stack: Stack
    hub: HandHub
    session: aiohttp.ClientSession
    chosen: list[str] = field(default_factory=list)
    holds: bool = False
    full: set[str] = field(default_factory=set)

    async def ask(self, path: str, body: dict[str, Any], **headers: str) -> str:
        """Sends a request; returns the replica that answered it."""
        given = {"Authorization": f"Bearer {TOKEN}", **headers}
        url = f"{self.stack.router.url}{path}"
        async with self.session.post(url, json=body, headers=given) as response:
            assert response.status == 200, await response.text()
        return self.chosen[-1]

    async def hold(self, path: str, bodies: list[dict[str, Any]]) -> list[str]:
        """Sends requests that are not answered; returns their replicas once all have one."""
        self.holds = True
        asking = [asyncio.create_task(self.ask(path, body)) for body in bodies]
        try:
            await until(lambda: len(self.chosen) == len(bodies) or any(t.done() for t in asking))
            assert len(self.chosen) == len(bodies), [t.exception() for t in asking if t.done()]
        finally:
            for task in asking:
                task.cancel()
            await asyncio.gather(*asking, return_exceptions=True)
        return self.chosen

    async def play(self) -> None:
        """Answers the router."""
        while True:
            for message in await self.hub.heard():
                self._reply(message)

    def _reply(self, message: msgspec.Struct) -> None:
        match message:
            case Ping():
                self.hub.say(Pong())
            case ServiceCall(call_id=call_id, replica_id=replica_id):
                if replica_id in self.full:
                    self.hub.say(CallRefused(call_id, FULL))
                    return
                self.chosen.append(replica_id)
                if not self.holds:
                    self.hub.say(CallEnded(call_id, "ok", body=_ANSWER))
            case RunStages(request_id=request_id, route=route):
                first = route.stages[0]
                self.chosen.append(first.replica_id)
                if not self.holds:
                    value = StageValue(request_id, route.version, "reply", first.stage, b"1")
                    self.hub.say(value)


@contextlib.asynccontextmanager
async def played_replicas(stack: Stack, *loads: ReplicaLoad) -> AsyncIterator[PlayedReplicas]:
    """Yields replicas that a router knows."""
    async with hand_hub(stack.folder, *loads) as hub, aiohttp.ClientSession() as session:
        replicas = stack.router._replicas
        await until(lambda: replicas.count(loads[0].service) == len(loads))
        played = PlayedReplicas(stack, hub, session)
        task = asyncio.create_task(played.play())
        try:
            yield played
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
