"""Answers calls of services in an engine host, beside its attempts.

The worker's hub connects to the host's Unix socket. A stream has credit: once that many bytes are
on their way to the client, nothing more is taken from the engine until the client has read some.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, cast

import msgspec

from flowmesh_core.decoding import decode
from flowmesh_core.errors import AttemptError, FailureKind, ProtocolError
from flowmesh_core.protocol.serving import (
    CREDIT_BYTES,
    FAILED,
    FULL,
    OK,
    Abort,
    CallEnded,
    CallHostHello,
    CallRefused,
    CallsWithinTargets,
    ComponentCall,
    ComponentProfiles,
    Credit,
    ForgetValues,
    Piece,
    ServiceCall,
    ToCallHost,
    TokenTargets,
)
from flowmesh_worker.engine_api import (
    CallRefusedError,
    HasAdapters,
    KeepsTokenTargets,
    Serves,
    ServesComponents,
    ServingAnswer,
    ServingCall,
)
from flowmesh_worker.ipc.channel import Channel
from flowmesh_worker.ipc.descriptor_listener import DescriptorListener
from flowmesh_worker.ipc.descriptor_socket import DescriptorSocket
from flowmesh_worker.ipc.passed_values import StageBytes, receive_values, send_value

_PROFILES_EVERY_S = 0.05
_SERVER_ERROR = 500
_TOO_MANY = 429
_SUCCESS = 200
_bodies = msgspec.json.Decoder(dict)


class CallServer:
    """Listens on one Unix socket."""

    def __init__(self, engine: Serves | None, on_broken: Callable[[AttemptError], None]) -> None:
        """Listens in :meth:`listen`.

        Args:
            engine: it is loaded; None if it answers no calls.
            on_broken: called when the engine reports itself broken.
        """
        self._engine = engine
        self._on_broken = on_broken
        self._listener = DescriptorListener(self._connected)
        self._connections: set[_HubConnection] = set()

    async def listen(self, path: Path) -> None:
        """Takes calls from now on.

        Raises:
            OSError: the socket cannot be created.
        """
        self._listener.listen(path)

    async def close(self) -> None:
        """Stops listening and cancels all calls."""
        self._listener.close()
        for connection in list(self._connections):
            await connection.close()

    def _connected(self, descriptors: DescriptorSocket) -> Channel[ToCallHost]:
        hub = _HubConnection(self._engine, descriptors, self._on_broken, self._connections.discard)
        self._connections.add(hub)
        return hub.channel


class _HubConnection:
    """The calls of one connection; they end with it, and so do the values that they keep here."""

    def __init__(
        self,
        engine: Serves | None,
        descriptors: DescriptorSocket,
        on_broken: Callable[[AttemptError], None],
        on_end: "Callable[[_HubConnection], None]",
    ) -> None:
        self._engine = engine
        self._descriptors = descriptors
        self._on_broken = on_broken
        self._on_end = on_end
        self._tasks: dict[str, asyncio.Future[Any]] = {}
        self._credits: dict[str, _StreamCredit] = {}
        self._stored: set[str] = set()
        self.channel: Channel[ToCallHost] = Channel(ToCallHost, self._receive, self._lost)
        paths, calls_max = engine.serves() if engine is not None else ((), 0)
        adapters = cast(HasAdapters, engine).adapters if hasattr(engine, "adapters") else ()
        self.channel.send(CallHostHello(paths, calls_max, adapters))
        self._profiles_timer: asyncio.TimerHandle | None = None
        self._components: ServesComponents | None = None
        if hasattr(engine, "call_component"):
            self._components = cast(ServesComponents, engine)
            self._send_profiles()

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        self._lost()
        await asyncio.gather(*tasks, return_exceptions=True)
        self.channel.close()

    def _send_calls_within_targets(self, calls: int) -> None:
        self.channel.send(CallsWithinTargets(calls))

    def _send_profiles(self) -> None:
        self._profiles_timer = None
        assert self._components is not None
        profiles = self._components.profiles(self._profiles_changed)
        self.channel.send(ComponentProfiles(profiles))

    def _profiles_changed(self) -> None:
        if self._profiles_timer is None:
            loop = asyncio.get_running_loop()
            self._profiles_timer = loop.call_later(_PROFILES_EVERY_S, self._send_profiles)

    def _lost(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        self._descriptors.close()
        if self._components is not None and self._stored:
            self._components.forget_values(tuple(self._stored))
            self._stored.clear()
        self._on_end(self)

    def _receive(self, message: ToCallHost) -> None:
        match message:
            case ServiceCall():
                self._begin(message.call_id, partial(self._run, message))
            case ComponentCall():
                self._receive_component_call(message)
            case Credit(call_id=call_id, size=size):
                if call_id in self._credits:
                    self._credits[call_id].add(size)
            case Abort(call_id=call_id):
                if call_id in self._tasks:
                    self._tasks[call_id].cancel()
            case TokenTargets():
                self._use_targets(message)
            case ForgetValues(keys=keys):
                self._stored.difference_update(keys)
                if self._components is not None:
                    self._components.forget_values(keys)

    def _receive_component_call(self, call: ComponentCall) -> None:
        try:
            values = receive_values(call.passed, self._descriptors)
        except ProtocolError:  # more values than one connection may have open
            self.channel.send(CallEnded(call.call_id, FULL, _TOO_MANY))
            return
        self._stored.update(filter(None, (one.store_as for one in (call, *call.then))))
        self._begin_component(call, values)

    def _use_targets(self, targets: TokenTargets) -> None:
        if hasattr(self._engine, "use_targets"):
            engine = cast(KeepsTokenTargets, self._engine)
            engine.use_targets(targets, self._send_calls_within_targets)

    def _begin(self, call_id: str, work: Callable[[], Awaitable[CallEnded]]) -> None:
        if call_id in self._tasks:
            return
        task = asyncio.get_running_loop().create_task(self._run_to_end(call_id, work))
        self._tasks[call_id] = task
        # Not at the end of the task, which may be cancelled before its first step.
        task.add_done_callback(lambda _: self._forget(call_id))

    async def _run_to_end(self, call_id: str, work: Callable[[], Awaitable[CallEnded]]) -> None:
        try:
            end = await work()
        except asyncio.CancelledError:
            return
        except CallRefusedError:
            self.channel.send(CallRefused(call_id, FULL))
            return
        except Exception as error:
            end = self._failed(call_id, error)
        self.channel.send(end)

    async def _run(self, call: ServiceCall) -> CallEnded:
        return await (self._stream(call) if call.stream else self._answer(call))

    def _begin_component(self, call: ComponentCall, values: Mapping[str, StageBytes]) -> None:
        if call.call_id in self._tasks:
            return
        assert self._components is not None
        ended = partial(self._component_ended, call.call_id)
        running = self._components.call_component(call, values, ended)
        self._tasks[call.call_id] = running
        running.add_done_callback(lambda _: self._forget(call.call_id))

    def _component_ended(
        self, call_id: str, end: CallEnded | BaseException, value: StageBytes
    ) -> None:
        if isinstance(end, BaseException):
            end = self._failed(call_id, end)
        elif value:
            try:
                end = msgspec.structs.replace(end, value=send_value(value, self._descriptors))
            except ProtocolError:  # the hub has not read what came before
                end = CallEnded(call_id, FULL, _TOO_MANY)
        self.channel.send(end)

    def _failed(self, call_id: str, error: BaseException) -> CallEnded:
        if isinstance(error, AttemptError) and _is_broken(error):
            self._on_broken(error)
        return CallEnded(call_id, FAILED, _SERVER_ERROR, _server_error(error))

    def _forget(self, call_id: str) -> None:
        self._tasks.pop(call_id, None)
        self._credits.pop(call_id, None)

    async def _answer(self, call: ServiceCall) -> CallEnded:
        assert self._engine is not None
        return _end(call, await self._engine.answer(_serving_call(call)))

    async def _stream(self, call: ServiceCall) -> CallEnded:
        assert self._engine is not None
        credit = self._credits[call.call_id] = _StreamCredit(CREDIT_BYTES)
        answer = ServingAnswer()
        async with contextlib.aclosing(self._engine.stream(_serving_call(call))) as pieces:  # type: ignore[type-var]
            async for piece in pieces:
                if isinstance(piece, ServingAnswer):
                    answer = piece
                    continue
                self.channel.send(Piece(call.call_id, piece))
                await credit.spend(len(piece))
        return _end(call, answer)


class _StreamCredit:
    """The bytes of one stream that may be on their way."""

    def __init__(self, size: int) -> None:
        self._left = size
        self._available = asyncio.Event()
        self._available.set()

    def add(self, size: int) -> None:
        self._left += size
        if self._left > 0:
            self._available.set()

    async def spend(self, size: int) -> None:
        """Spends credit for what was sent, and waits until more may be sent."""
        self._left -= size
        if self._left <= 0:
            self._available.clear()
            await self._available.wait()


def _serving_call(call: ServiceCall) -> ServingCall:
    return ServingCall(
        call_id=call.call_id,
        path=call.path,
        model=call.model,
        body=decode(_bodies, call.body),
        cache_salt=call.cache_salt,
        priority=call.priority,
        seed=call.seed,
        tool_parser=call.tool_parser,
        adapter=call.adapter,
    )


def _end(call: ServiceCall, answer: ServingAnswer) -> CallEnded:
    outcome = OK if answer.status == _SUCCESS else FAILED
    return CallEnded(
        call.call_id, outcome, answer.status, answer.body, answer.tokens_in, answer.tokens_out
    )


def _is_broken(error: AttemptError) -> bool:
    return error.failure.kind is FailureKind.HOST_CRASHED


def _server_error(error: BaseException) -> bytes:
    """Returns OpenAI's error object; what failed inside the engine is not the caller's to read."""
    return msgspec.json.encode(
        {
            "error": {
                "message": f"The engine failed on the request ({type(error).__name__}).",
                "type": "server_error",
                "param": None,
                "code": None,
            }
        }
    )
