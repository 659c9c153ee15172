"""Requests at a rate to both routers of a fabric; each answer is checked against its question."""

import asyncio
import contextlib
import itertools
import random
import ssl
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec
from tests.flowmesh_serving import array_service
from tests.flowmesh_serving.echo_fabric import ROUTERS
from tests.flowmesh_serving.kept_connections import KeptConnections
from tests.flowmesh_serving.stack import MODEL, TOKEN, says

_LATE_S = 0.1
_OK, _TOO_MANY = 200, 429


class RefusedError(Exception):
    """A request was turned away before it began."""


class RouterUrls(Protocol):
    """Where the routers listen, by name, and how those with a certificate are verified."""

    urls: dict[str, str]
    trust: ssl.SSLContext | bool


@dataclass
class RequestLoad(ABC):
    """Requests to a service, each with a question of its own.

    Attributes:
        open: the routers of requests that have not ended, by number.
        ok: whole and right answers.
        failed: why each other request failed, by number.
        wrong: questions whose answer was not theirs.
        refused: requests that were turned away before they began, with 429 or no connection.
        sent: the number of the newest request.
    """

    fabric: RouterUrls
    rate: float = 50.0
    rng: random.Random = field(default_factory=random.Random)
    open: dict[int, str] = field(default_factory=dict)
    ok: int = 0
    failed: dict[int, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    refused: int = 0
    sent: int = -1
    _connections: KeptConnections = field(init=False)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._connections = KeptConnections(self.fabric.trust)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Sends requests during the block, and waits for the last ones."""
        sending = asyncio.create_task(self._send())
        try:
            yield
        finally:
            sending.cancel()
            await asyncio.gather(*self._tasks)
            await self._connections.close()

    @property
    def ended(self) -> int:
        """Requests that have ended in any way."""
        return self.ok + len(self.failed) + len(self.wrong) + self.refused

    @property
    def doubled(self) -> list[bytes]:
        """Replies beyond one for each request."""
        return self._connections.left_over

    async def _send(self) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        for number in itertools.count():
            # Where this process stood still, what is late is not sent all at once.
            due_s = max(due_s, loop.time() - _LATE_S) + self.rng.expovariate(self.rate)
            await asyncio.sleep(max(0.0, due_s - loop.time()))
            self.sent, self.open[number] = number, ROUTERS[number % 2]
            task = asyncio.create_task(self._ask(number))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _ask(self, number: int) -> None:
        for name in (ROUTERS[number % 2], ROUTERS[1 - number % 2]):
            self.open[number] = name
            try:
                question, answer = await self._answer(self.fabric.urls[name], number)
            except ConnectionRefusedError:
                continue  # it does not listen: as a Service does, take the other
            except RefusedError:
                break
            except (OSError, EOFError, ValueError) as error:
                self.failed[number] = f"{number} at {name}: {error!r}"
            else:
                if answer == question:
                    self.ok += 1
                else:
                    self.wrong.append(f"{question!r} was answered {answer!r}")
            finally:
                del self.open[number]
            return
        self.refused += 1

    @abstractmethod
    async def _answer(self, url: str, number: int) -> tuple[object, object]:
        """Asks; returns the right answer and the one that came."""

    async def _post(self, url: str, path: str, token: str, body: Any) -> bytes:
        headers = {"Authorization": f"Bearer {token}"}
        data = msgspec.json.encode(body)
        status, data = await self._connections.post(url, path, data, headers)
        if status == _TOO_MANY:
            raise RefusedError
        if status != _OK:
            raise ValueError(f"{status} {data[:200]!r}")
        return data


@dataclass
class EchoLoad(RequestLoad):
    """Chats with ``test.echo``; each fourth is a stream, unless there are to be none."""

    text: str = "rest"
    token: str = TOKEN
    has_streams: bool = True

    def question(self, number: int) -> str:
        """Returns the words of a request."""
        return f"q{number} {self.text} a{number}"

    async def _answer(self, url: str, number: int) -> tuple[object, object]:
        words, stream = self.question(number), self.has_streams and number % 4 == 0
        body = {"model": MODEL, "messages": says(words), "stream": stream}
        data = await self._post(url, "/v1/chat/completions", self.token, body)
        return words, _streamed(data) if stream else _whole(data)


@dataclass
class ArrayLoad(RequestLoad):
    """Requests to the service whose first component passes an array to its second."""

    async def _answer(self, url: str, number: int) -> tuple[object, object]:
        length = array_service.LEAST + number % array_service.LENGTHS
        data = await self._post(url, array_service.URL, array_service.TOKEN, {"n": length})
        return array_service.reply(length), msgspec.json.decode(data)


@dataclass
class StagesLoad(RequestLoad):
    """Requests to the stages of a service that repeat a text.

    Attributes:
        path: of the service.
    """

    path: str = ""
    token: str = ""

    async def _answer(self, url: str, number: int) -> tuple[object, object]:
        words = f"q{number} rest a{number}"
        data = await self._post(url, self.path, self.token, {"text": words})
        return {"said": words}, msgspec.json.decode(data)


def _whole(data: bytes) -> str:
    return str(msgspec.json.decode(data)["choices"][0]["message"]["content"])


def _streamed(data: bytes) -> str:
    words = []
    for line in data.decode().splitlines():
        if line.startswith("data: ") and line != "data: [DONE]":
            event = msgspec.json.decode(line[6:])
            if "error" in event:
                raise ValueError(f"broken off: {event['error']}")
            words.append(event["choices"][0]["delta"].get("content"))
    return " ".join(w for w in words if w)
