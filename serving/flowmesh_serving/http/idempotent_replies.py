"""The replies to requests with an idempotency key: one that is sent again gets the first's reply.

A second request with a key waits while the first is in flight, and gets its reply, or its error.
Complete replies are remembered for some minutes, in bounded memory: a namespace that sends many
keys, or large replies, forgets its own first. Where the first has no reply, since its client is
gone or the reply was too large, the next request is computed.
"""

import asyncio
from collections.abc import Collection, Mapping
from copy import copy
from dataclasses import dataclass, field
from types import TracebackType
from typing import NamedTuple, Self

from blake3 import blake3

from flowmesh_core.openai.errors import OpenAiError, invalid_value
from flowmesh_serving.errors import deadline_exceeded, key_reused
from flowmesh_serving.http.whole_response import WholeResponse
from flowmesh_serving.service_table import Caller

KEY_HEADER = "Idempotency-Key"
REPLAYED = "replayed"
"""The outcome of a request that got the reply of an equal one."""
REMEMBERED_S = 600.0
REPLY_BYTES_MAX = 1 << 20
"""A larger reply is not remembered."""
REPLIES_MAX, BYTES_MAX = 256, 8 << 20
"""Replies that are remembered, and their bytes, of one namespace at one service."""
ALL_BYTES_MAX = 64 << 20
"""Bytes of all replies of a router; beyond it the namespace with the most forgets its oldest."""
_KEY_CHARS_MAX = 255
_REPLAYED = ("Idempotent-Replayed", "true")
_DIGEST_BYTES = 16


class _Name(NamedTuple):
    service: str
    tenant: str
    digest: bytes

    @property
    def group(self) -> tuple[str, str]:
        return self.service, self.tenant


@dataclass(slots=True, eq=False)
class _Open:
    """A request in flight, and those that wait for its reply."""

    fingerprint: bytes
    waiters: dict["asyncio.Future[WholeResponse | OpenAiError | None]", None] = field(
        default_factory=dict
    )


class _Remembered(NamedTuple):
    fingerprint: bytes
    reply: WholeResponse
    until_s: float


@dataclass(slots=True, eq=False)
class _Group:
    """What is remembered of one namespace at one service, the oldest first."""

    replies: dict[bytes, _Remembered] = field(default_factory=dict)
    size: int = 0


class Turn:
    """The right to compute a request, as a context; or the reply of an equal one.

    Attributes:
        reply: of the first request with the key; None where this request is to be computed.
        waited_s: how long it has waited for others.
    """

    reply: WholeResponse | None = None
    waited_s = 0.0

    def __enter__(self) -> Self:
        """The request is computed."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        """It has ended."""

    def record(self, piece: bytes) -> None:
        """Adds bytes to the reply that is streamed."""

    def answer(self, reply: WholeResponse, *, is_complete: bool) -> None:
        """Gives the reply to those that wait for it.

        Args:
            reply: with what was recorded as its body, where it was streamed.
            is_complete: whether it is remembered; else later requests are computed.
        """

    def fail(self, error: OpenAiError) -> None:
        """Gives an error to those that wait, where a stream breaks off with it."""


NO_KEY = Turn()
"""Of requests without a key."""


class _Replayed(Turn):
    def __init__(self, reply: WholeResponse) -> None:
        self.reply = reply._replace(headers=(*reply.headers, _REPLAYED))


class _Computed(Turn):
    """The turn of the first request with a key."""

    def __init__(
        self, replies: "IdempotentReplies", name: _Name, entry: _Open, waited_s: float
    ) -> None:
        self._replies = replies
        self._name = name
        self._entry = entry
        self._pieces: list[bytes] = []
        self._size = 0
        self._has_ended = False
        self.waited_s = waited_s

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        self._end(error if isinstance(error, OpenAiError) else None)

    def record(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size <= REPLY_BYTES_MAX:
            self._pieces.append(piece)
        else:
            self._pieces.clear()

    def answer(self, reply: WholeResponse, *, is_complete: bool) -> None:
        if self._size:
            reply = reply._replace(body=b"".join(self._pieces))
        size = max(self._size, len(reply.body))
        if size > REPLY_BYTES_MAX:
            self._end(None)
            return
        if is_complete:
            self._replies._remember(self._name, self._entry.fingerprint, reply)
        self._end(reply)

    def fail(self, error: OpenAiError) -> None:
        self._end(error)

    def _end(self, reply: WholeResponse | OpenAiError | None) -> None:
        if not self._has_ended:
            self._has_ended = True
            self._replies._close(self._name, self._entry, reply)


class IdempotentReplies:
    """The requests with keys of one router."""

    def __init__(self) -> None:
        self._open: dict[_Name, _Open] = {}
        self._groups: dict[tuple[str, str], _Group] = {}
        self._size = 0
        self._expiry: asyncio.TimerHandle | None = None

    async def turn(
        self,
        caller: Caller,
        headers: Mapping[str, str],
        request: tuple[str, bytes],
        within_s: float,
    ) -> Turn:
        """Returns the turn of a request, at once or after an equal one in flight.

        Args:
            caller: whose keys are looked up.
            headers: of the request; one without a key is computed.
            request: what must be equal: how it is answered, and its body.
            within_s: how long it may wait.

        Raises:
            OpenAiError: the key is not valid, or is of another request; the first has failed, or
                does not end in time.
        """
        key = headers.get(KEY_HEADER, "")
        if not key:
            return NO_KEY
        if len(key) > _KEY_CHARS_MAX:
            raise invalid_value(KEY_HEADER, f"expected at most {_KEY_CHARS_MAX} characters.")
        name = _Name(
            caller.service.service,
            caller.namespace,
            _digest(key.encode(errors="surrogateescape")),
        )
        fingerprint = _digest(request[0].encode() + b"\0" + request[1])
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        while True:
            if (known := self._known(name)) is not None:
                _require_equal(known.fingerprint, fingerprint)
                return _Replayed(known.reply)
            entry = self._open.get(name)
            if entry is None:
                entry = self._open[name] = _Open(fingerprint)
                return _Computed(self, name, entry, loop.time() - began_s)
            _require_equal(entry.fingerprint, fingerprint)
            found = await self._answer_of(entry, began_s + within_s)
            if isinstance(found, OpenAiError):
                raise copy(found)  # each that waits has its own: raising keeps frames with bodies
            if found is not None:
                return _Replayed(found)

    def keep(self, services: Collection[str]) -> None:
        """Forgets the replies of all other services."""
        for group in [g for g in self._groups if g[0] not in services]:
            self._size -= self._groups.pop(group).size

    def close(self) -> None:
        """Forgets all replies."""
        self.keep(())
        if self._expiry is not None:
            self._expiry.cancel()
            self._expiry = None

    @staticmethod
    async def _answer_of(entry: _Open, until_s: float) -> WholeResponse | OpenAiError | None:
        waiter: asyncio.Future[WholeResponse | OpenAiError | None]
        waiter = asyncio.get_running_loop().create_future()
        entry.waiters[waiter] = None
        try:
            async with asyncio.timeout_at(until_s):
                return await waiter
        except TimeoutError:
            raise deadline_exceeded() from None
        finally:
            entry.waiters.pop(waiter, None)

    def _known(self, name: _Name) -> _Remembered | None:
        group = self._groups.get(name.group)
        return None if group is None else group.replies.get(name.digest)

    def _close(self, name: _Name, entry: _Open, reply: WholeResponse | OpenAiError | None) -> None:
        """Ends what is in flight; without a reply all that wait ask again, and one is computed."""
        del self._open[name]
        for waiter in entry.waiters:
            if not waiter.done():
                waiter.set_result(reply)

    def _remember(self, name: _Name, fingerprint: bytes, reply: WholeResponse) -> None:
        until_s = asyncio.get_running_loop().time() + REMEMBERED_S
        group = self._groups.setdefault(name.group, _Group())
        group.replies[name.digest] = _Remembered(fingerprint, reply, until_s)
        group.size += len(reply.body)
        self._size += len(reply.body)
        while len(group.replies) > REPLIES_MAX or group.size > BYTES_MAX:
            self._forget_oldest(name.group)
        while self._size > ALL_BYTES_MAX:
            self._forget_oldest(max(self._groups, key=lambda one: self._groups[one].size))
        if self._expiry is None:
            self._expiry = asyncio.get_running_loop().call_at(until_s, self._expire)

    def _forget_oldest(self, named: tuple[str, str]) -> None:
        group = self._groups[named]
        forgotten = group.replies.pop(next(iter(group.replies)))
        group.size -= len(forgotten.reply.body)
        self._size -= len(forgotten.reply.body)
        if not group.replies:
            del self._groups[named]

    def _expire(self) -> None:
        """Forgets the replies whose time has come, so that none stays in memory."""
        self._expiry = None
        loop = asyncio.get_running_loop()
        now_s = loop.time()
        for named, group in list(self._groups.items()):
            while group.replies and next(iter(group.replies.values())).until_s <= now_s:
                self._forget_oldest(named)
        oldest = [next(iter(group.replies.values())).until_s for group in self._groups.values()]
        if oldest:
            self._expiry = loop.call_at(min(oldest), self._expire)


def _digest(data: bytes) -> bytes:
    return blake3(data).digest(_DIGEST_BYTES)


def _require_equal(known: bytes, fingerprint: bytes) -> None:
    if known != fingerprint:
        raise key_reused()
